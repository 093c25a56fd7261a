// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory by time: when each allocation of a program is in use, and how far memory is filled in each
// part of a step.

#include "protrain/core/config.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// A step in parts of equal length. In each: the largest end, in bytes, of an allocation that is in
/// use then, rounded up to a granule; the largest of them is the peak of the step's programs.
struct memory_over_time {
  picoseconds length{};  ///< of all parts together; programs that repeat are there once
  std::vector<std::uint64_t> device{};
  std::vector<std::uint64_t> host{};
  bool operator==(memory_over_time const&) const = default;
};

/// A program and when its instructions run, on a clock of its own.
struct timed_program {
  schedule::program program{};
  sim::timeline times{};
};

/// When an allocation is in use; carried ones are all the time, others that nothing touches never.
struct usage_time {
  sim::interval when{};  ///< from the first instruction's start to the last one's end
  bool used = false;
};

/// By allocation. O(operands).
constexpr std::vector<usage_time> usage_of(schedule::program const& p, sim::timeline const& t) {
  std::vector<usage_time> out(p.allocations.size(), usage_time{});
  for (std::size_t i = 0; i < p.instructions.size(); ++i) {
    for (schedule::operand const& o : p.operands_of(p.instructions[i])) {
      usage_time& use = out[o.allocation.index()];
      use.when.start = use.used ? std::min(use.when.start, t.at[i].start) : t.at[i].start;
      use.when.end = std::max(use.when.end, t.at[i].end);
      use.used = true;
    }
  }
  for (std::size_t k = 0; k < out.size(); ++k) {
    if (p.allocations[k].carried) {
      out[k] = {.when = {.end = t.finish}, .used = true};
    }
  }
  return out;
}

/// The programs of the step of `p` that repeats, in the order in which they run on `m`, under the
/// policies that made it.
template <class Policies = policies<>>
constexpr result<std::vector<timed_program>> timed_step(plan const& p,
                                                        hw::machine const& m,
                                                        Policies const& rules = {}) {
  auto programs =
      schedule::compile_step(p.trace, p.layout, p.knobs, rules.eviction, p.at.defer > 0);
  if (!programs) {
    return programs.failure();
  }
  sim::pace const speeds(m, rules.bandwidth, p.trace.job.world);
  std::vector<timed_program> out{};
  for (schedule::program& one : *programs) {
    auto times = sim::simulate(one, sim::durations_of(one, p.trace, speeds), speeds);
    out.push_back({.program = std::move(one), .times = std::move(times)});
  }
  return out;
}

namespace detail {

/// The part of `length`, cut into `parts`, in which `at` lies; the end belongs to the last one.
constexpr std::size_t part_at(picoseconds at, picoseconds length, std::size_t parts) {
  std::uint64_t const n = length.value == 0 ? 0 : mul_div(at.value, parts, length.value);
  return static_cast<std::size_t>(std::min<std::uint64_t>(n, parts - 1));
}

constexpr void raise(std::vector<std::uint64_t>& out,
                     std::size_t first,
                     std::size_t last,
                     std::uint64_t to) {
  for (std::size_t k = first; k <= last; ++k) {
    out[k] = std::max(out[k], to);
  }
}

}  // namespace detail

/// Of a step's programs, in at most `parts` > 0 parts. O(operands + allocations x parts).
constexpr memory_over_time memory_by_time(std::span<timed_program const> step, std::size_t parts) {
  PROTRAIN_EXPECT(parts > 0, "a step has a part");
  memory_over_time out{};
  for (timed_program const& one : step) {
    out.length += one.times.finish;
  }
  out.device.assign(parts, 0);
  out.host.assign(parts, 0);
  picoseconds begin{};
  for (timed_program const& one : step) {
    std::vector<usage_time> const uses = usage_of(one.program, one.times);
    for (std::size_t k = 0; k < uses.size(); ++k) {
      if (!uses[k].used) {
        continue;
      }
      schedule::allocation const& a = one.program.allocations[k];
      // What ends when a part begins is not in use in it, unless it takes no time at all.
      picoseconds const first = begin + uses[k].when.start;
      picoseconds const end = begin + uses[k].when.end;
      picoseconds const last = first < end ? picoseconds{end.value - 1} : first;
      detail::raise(a.where == space::device ? out.device : out.host,
                    detail::part_at(first, out.length, parts),
                    detail::part_at(last, out.length, parts),
                    a.offset + granules(a.bytes));
    }
    begin += one.times.finish;
  }
  return out;
}

}  // namespace protrain::inline v0::plan
