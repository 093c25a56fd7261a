// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long transfers and memory-bound work take: the bandwidth policy.

#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::link {

/// What limits a piece of work.
enum class channel : std::uint8_t {
  host_to_device,
  device_to_host,
  collective,
  device_memory,
  host_memory,
};
inline constexpr std::size_t channel_count = 5;

struct bandwidth_tag {};

/// Gives each channel its rate. Laws (test/law/bandwidth.hpp): rates are positive for a machine
/// whose rates are; a machine with higher rates never has a lower one; equal inputs, equal answers.
template <class P>
concept bandwidth_policy = std::regular<P> && std::same_as<typename P::policy_tag, bandwidth_tag> &&
                           requires(P const& p, hw::machine const& m, channel c) {
                             { p.rate(m, c) } noexcept -> std::same_as<bandwidth>;
                           };

/// Every channel at its own rate, whatever else runs.
struct fixed {
  using policy_tag = bandwidth_tag;
  constexpr bandwidth rate(hw::machine const& m, channel c) const noexcept {
    switch (c) {
      case channel::host_to_device:
        return m.host_to_device;
      case channel::device_to_host:
        return m.device_to_host;
      case channel::collective:
        return m.collective;
      case channel::device_memory:
        return m.device_bandwidth;
      case channel::host_memory:
        return m.host_bandwidth;
    }
    return {};
  }
  bool operator==(fixed const&) const = default;
};
static_assert(bandwidth_policy<fixed>);

/// Time of a copy of `amount` bytes; a copy of nothing takes no time, not even latency.
template <bandwidth_policy P>
constexpr picoseconds copy_time(P const& policy,
                                hw::machine const& m,
                                channel c,
                                std::uint64_t amount) {
  if (amount == 0) {
    return {};
  }
  return time_of(amount, policy.rate(m, c)) + m.copy_latency;
}

}  // namespace protrain::inline v0::link
