// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a little more would buy: of the device's memory, of the bandwidth to the host, or a rank. One
// search each.

#include "protrain/core/config.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace protrain::inline v0::plan {

/// A plan that would be made with more of something; the plan at hand where that is no faster.
struct sensitivity {
  bytes more{};             ///< of memory; 0 where it is something else that there is more of
  numbers at{};             ///< the plan for it
  picoseconds iteration{};  ///< its predicted time
  picoseconds saved{};      ///< against the plan at hand
  bool operator==(sensitivity const&) const = default;
};

/// The same job on one rank more, each of which does what it did: a step has more samples.
struct another_rank {
  std::uint64_t world = 0;   ///< ranks then; 0: the machine has no device for it
  std::uint64_t tokens = 0;  ///< of a step then, over all ranks
  bool fits = false;
  numbers at{};
  picoseconds iteration{};  ///< predicted, if it fits
  infeasible lacks{};       ///< if it doesn't
  bool operator==(another_rank const&) const = default;
};

inline constexpr std::uint64_t more_bandwidth_percent = 10;

namespace detail {

constexpr bandwidth faster(bandwidth b) {
  std::uint64_t const added = mul_div(b.per_second, more_bandwidth_percent, 100);
  std::uint64_t const room = std::numeric_limits<std::uint64_t>::max() - b.per_second;
  return {b.per_second + std::min(added, room)};
}

constexpr hw::copy_rates faster(hw::copy_rates const& r) {
  return {.host_to_device = faster(r.host_to_device), .device_to_host = faster(r.device_to_host)};
}

/// `next` in the place of what `out` has, if it is faster.
constexpr void take_faster(sensitivity& out,
                           result<plan, infeasible> const& next,
                           picoseconds before) {
  if (next && next->predicted.iteration < out.iteration) {
    out.iteration = next->predicted.iteration;
    out.at = next->at;
    out.saved = before - next->predicted.iteration;
  }
}

}  // namespace detail

/// `m` with 10 % more of each rate between host and device, alone and beside something else: another
/// generation of the bus. What the host's memory gives the CPU optimizer, latencies and links between
/// devices stay.
constexpr hw::machine with_faster_copies(hw::machine m) {
  m.host_to_device = detail::faster(m.host_to_device);
  m.device_to_host = detail::faster(m.device_to_host);
  for (hw::copy_rates* const r : {&m.concurrent.both_ways,
                                  &m.concurrent.beside_compute,
                                  &m.concurrent.beside_update,
                                  &m.concurrent.all_ranks}) {
    *r = detail::faster(*r);
  }
  return m;
}

/// The facts of the same blocks for a job of `world` ranks. Nothing else in a trace depends on how
/// many there are: its times and bytes are of one rank's micro-batch. `outside` stays as it was
/// measured, though a communicator of more ranks may take more.
constexpr trace::trace with_world(trace::trace t, std::uint64_t world) {
  t.job.world = world;
  return t;
}

/// What 1 GiB more for the device would buy `p`, or a quarter of its budget if that is less.
template <class Policies = policies<>>
constexpr sensitivity more_memory(plan const& p,
                                  hw::machine const& m,
                                  budget b,
                                  Policies const& rules = {},
                                  request const& wanted = {},
                                  limits const& most = {}) {
  constexpr std::uint64_t gib = 1ULL << 30U;
  std::uint64_t const room = std::numeric_limits<std::uint64_t>::max() - b.gpu.value;
  sensitivity out{.more = {std::min({gib, b.gpu.value / 4, room})},
                  .at = p.at,
                  .iteration = p.predicted.iteration};
  b.gpu += out.more;
  detail::take_faster(out, make(p.trace, m, b, rules, wanted, most), p.predicted.iteration);
  return out;
}

/// What `with_faster_copies` would buy `p`: no less than it buys without another plan.
template <class Policies = policies<>>
constexpr sensitivity more_bandwidth(plan const& p,
                                     hw::machine const& m,
                                     budget const& b,
                                     Policies const& rules = {},
                                     request const& wanted = {},
                                     limits const& most = {}) {
  hw::machine const faster = with_faster_copies(m);
  sensitivity out{.at = p.at, .iteration = p.predicted.iteration};
  auto const same = parse(p.string().view(), p.trace.job);
  PROTRAIN_EXPECT(same.has_value(), "a plan's string is a request");
  // A search that meets its limits may miss what it found before.
  for (request const* const each : {&wanted, &*same}) {
    detail::take_faster(out, make(p.trace, faster, b, rules, *each, most), p.predicted.iteration);
  }
  return out;
}

/// What the job of `p` would do on one rank more, if the machine has a device for it.
template <class Policies = policies<>>
constexpr another_rank one_rank_more(plan const& p,
                                     hw::machine const& m,
                                     budget const& b,
                                     Policies const& rules = {},
                                     request const& wanted = {},
                                     limits const& most = {}) {
  another_rank out{};
  if (p.trace.job.world >= hw::all_ranks(m)) {
    return out;
  }
  trace::trace const facts = with_world(p.trace, p.trace.job.world + 1);
  out.world = facts.job.world;
  out.tokens = model::tokens_per_step(facts.job);
  if (auto const next = make(facts, m, b, rules, wanted, most)) {
    out.fits = true;
    out.at = next->at;
    out.iteration = next->predicted.iteration;
  } else {
    out.lacks = next.failure();
  }
  return out;
}

}  // namespace protrain::inline v0::plan
