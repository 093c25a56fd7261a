// SPDX-License-Identifier: Apache-2.0
#pragma once
// The simulated timeline of a step in the JSON trace format that ui.perfetto.dev opens: a track for
// each queue, and who holds the memory over time. With JSON, hence not in the umbrella.

#include "protrain/core/config.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/io/json.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/print.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

/// Trace times are microseconds; a double holds picoseconds of hours.
inline double microseconds(picoseconds t) { return static_cast<double>(t.value) * 1e-6; }

inline io::json track_name(char const* what, std::uint64_t track, std::string_view name) {
  return {{"ph", "M"}, {"name", what}, {"pid", 1}, {"tid", track}, {"args", {{"name", name}}}};
}

inline io::json slice(schedule::program const& p,
                      std::size_t at,
                      sim::interval const& when,
                      picoseconds begin,
                      trace::trace const& facts) {
  schedule::instruction const& i = p.instructions[at];
  io::json args{{"instruction", at}, {"program", schedule::name_of(p.part)}};
  if (i.amount > 0) {
    args["amount"] = i.amount;  // bytes of a copy, elements of an update
  }
  return {{"ph", "X"},
          {"name", schedule::print(i, facts).view()},
          {"cat", schedule::name_of(i.op)},
          {"pid", 1},
          {"tid", static_cast<std::uint64_t>(i.queue) + 1},
          {"ts", microseconds(begin + when.start)},
          {"dur", microseconds(when.end - when.start)},
          {"args", std::move(args)}};
}

/// When each allocation is in use: from the start of the first instruction that touches it to the end
/// of the last. Where nothing does: empty.
inline std::vector<sim::interval> in_use(schedule::program const& p, sim::timeline const& t) {
  std::vector<sim::interval> out(p.allocations.size());
  std::vector<bool> seen(p.allocations.size(), false);
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    for (schedule::operand const& o : p.operands_of(p.instructions[i])) {
      sim::interval& use = out[o.allocation.index()];
      use.start = seen[o.allocation.index()] ? std::min(use.start, t.at[i].start) : t.at[i].start;
      seen[o.allocation.index()] = true;
      use.end = std::max(use.end, t.at[i].end);
    }
  }
  return out;
}

/// Bytes by category over time. Ranges that lie over each other are never in use together, so that
/// the sum stays below the peak; what is carried is there all the time.
inline void add_memory(io::json& events,
                       schedule::program const& p,
                       sim::timeline const& t,
                       picoseconds begin,
                       space where) {
  std::map<picoseconds, std::array<std::int64_t, category_count>> changes;
  std::vector<sim::interval> const uses = in_use(p, t);
  for (std::size_t k = 0; k < p.allocations.size(); ++k) {
    schedule::allocation const& a = p.allocations[k];
    if (a.where != where) {
      continue;
    }
    auto const bytes = static_cast<std::int64_t>(granules(a.bytes));
    auto const what = static_cast<std::size_t>(a.what);
    if (a.carried) {
      changes[picoseconds{}][what] += bytes;
    } else if (uses[k].start < uses[k].end) {
      changes[uses[k].start][what] += bytes;
      changes[uses[k].end][what] -= bytes;
    }
  }
  changes.try_emplace(picoseconds{});  // what the program before held ends here
  std::array<std::int64_t, category_count> held{};
  for (auto const& [when, change] : changes) {
    io::json args = io::json::object();
    for (std::size_t c = 0; c < category_count; ++c) {
      held[c] += change[c];
      if (static_cast<category>(c) < category::padding) {
        args[std::string(name_of(static_cast<category>(c)))] = held[c];
      }
    }
    events.push_back({{"ph", "C"},
                      {"name", std::string(name_of(where)) + " memory"},
                      {"pid", 1},
                      {"ts", microseconds(begin + when)},
                      {"args", std::move(args)}});
  }
}

}  // namespace detail

/// One step: `programs` in the order in which they run, each on its own clock. A program that repeats
/// is shown once.
inline std::string perfetto(std::span<schedule::program const> programs,
                            std::span<sim::timeline const> times,
                            trace::trace const& facts) {
  PROTRAIN_EXPECT(programs.size() == times.size(), "one timeline per program");
  io::json events = io::json::array();
  events.push_back(detail::track_name("process_name", 0, "one rank, simulated"));
  for (std::size_t q = 0; q < queue_count; ++q) {
    events.push_back(detail::track_name("thread_name", q + 1, name_of(static_cast<queue_id>(q))));
  }
  picoseconds begin{};
  for (std::size_t k = 0; k < programs.size(); ++k) {
    for (std::size_t i = 0; i < programs[k].instructions.size(); ++i) {
      if (sim::interval const when = times[k].at[i]; when.start < when.end) {
        events.push_back(detail::slice(programs[k], i, when, begin, facts));
      }
    }
    for (space const where : {space::device, space::host}) {
      detail::add_memory(events, programs[k], times[k], begin, where);
    }
    begin += times[k].finish;
  }
  io::json const all{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  return all.dump(-1, ' ', false, io::json::error_handler_t::replace) + "\n";
}

/// The step of `found` that repeats, on `machine`, under the policies that made it.
template <class Policies = plan::policies<>>
result<std::string> perfetto(plan::plan const& found,
                             hw::machine const& machine,
                             Policies const& rules = {}) {
  auto const programs = schedule::compile_step(
      found.trace, found.layout, found.knobs, rules.eviction, found.at.defer > 0);
  if (!programs) {
    return programs.failure();
  }
  sim::pace const speeds(machine, rules.bandwidth, found.trace.job.world);
  std::vector<sim::timeline> times;
  for (schedule::program const& p : *programs) {
    times.push_back(sim::simulate(p, sim::durations_of(p, found.trace, speeds), speeds));
  }
  return perfetto(*programs, times, found.trace);
}

}  // namespace protrain::inline v0::report
