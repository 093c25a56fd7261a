// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a machine gives a program under a bandwidth policy, and what each piece of work costs at
// these rates. Simulation and bounds share these formulas, so that they can't disagree.

#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/model/job.hpp"

#include <cstdint>

namespace protrain::inline v0::cost {

/// Rates of a policy's channels when each has its channel to itself, as one rank gets them.
struct rates {
  bandwidth host_to_device{};
  bandwidth device_to_host{};
  bandwidth collective{};
  bandwidth device_memory{};
  bandwidth host_memory{};
  picoseconds latency{};  ///< of each copy
  picoseconds collective_latency{};
  bool operator==(rates const&) const = default;
};

/// What one of `world` ranks gets of a channel that gives `whole`: those on one host share its memory
/// and its threads, and copy at the rates of all its ranks at once.
constexpr bandwidth rate_of_rank(hw::machine const& m,
                                 link::channel c,
                                 bandwidth whole,
                                 std::uint64_t world) {
  switch (c) {
    case link::channel::host_to_device:
      return hw::beside(whole, hw::copies_of_rank(m, world).host_to_device);
    case link::channel::device_to_host:
      return hw::beside(whole, hw::copies_of_rank(m, world).device_to_host);
    case link::channel::host_memory:
      return hw::share_of_rank(m, whole, hw::local_ranks(m, world));
    case link::channel::collective:
    case link::channel::device_memory:
      return whole;
  }
  return whole;
}

template <link::bandwidth_policy B>
constexpr rates rates_of(hw::machine const& m, B const& policy, std::uint64_t world = 1) {
  auto const rate = [&](link::channel c) { return rate_of_rank(m, c, policy.rate(m, c), world); };
  return {.host_to_device = rate(link::channel::host_to_device),
          .device_to_host = rate(link::channel::device_to_host),
          .collective = rate(link::channel::collective),
          .device_memory = rate(link::channel::device_memory),
          .host_memory = rate(link::channel::host_memory),
          .latency = m.copy_latency,
          .collective_latency = hw::collective_latency(m)};
}

/// A copy; even one of nothing is issued and pays the latency.
constexpr picoseconds upload_time(rates const& r, std::uint64_t bytes) {
  return time_of(bytes, r.host_to_device) + r.latency;
}
constexpr picoseconds download_time(rates const& r, std::uint64_t bytes) {
  return time_of(bytes, r.device_to_host) + r.latency;
}

/// An all-gather or reduction of `bytes` over all ranks; nothing to do for one rank.
constexpr picoseconds collective_time(rates const& r, model::job const& j, std::uint64_t bytes) {
  return j.world == 1 ? picoseconds{} : time_of(bytes, r.collective) + r.collective_latency;
}

/// Memory-bound work that reads and writes `bytes` in all.
constexpr picoseconds device_time(rates const& r, std::uint64_t bytes) {
  return time_of(bytes, r.device_memory);
}
constexpr picoseconds host_time(rates const& r, std::uint64_t bytes) {
  return time_of(bytes, r.host_memory);
}

}  // namespace protrain::inline v0::cost
