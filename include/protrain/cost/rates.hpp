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

/// Rates of a policy whose channels don't depend on load, evaluated once, as one rank gets them.
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

/// In a job of `world` ranks, those on one host share its memory and its threads, and copy at the
/// rates of all its ranks at once.
template <link::bandwidth_policy B>
constexpr rates rates_of(hw::machine const& m, B const& policy, std::uint64_t world = 1) {
  hw::copy_rates const most = hw::copies_of_rank(m, world);
  return {.host_to_device =
              hw::beside(policy.rate(m, link::channel::host_to_device), most.host_to_device),
          .device_to_host =
              hw::beside(policy.rate(m, link::channel::device_to_host), most.device_to_host),
          .collective = policy.rate(m, link::channel::collective),
          .device_memory = policy.rate(m, link::channel::device_memory),
          .host_memory = hw::share_of_rank(
              m, policy.rate(m, link::channel::host_memory), hw::local_ranks(m, world)),
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
