// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rates of transfers that run beside activation swapping: an optional capability of bandwidth
// policies, and the paper's policy, which has it.

#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace protrain::inline v0::link {

/// A policy that knows what a chunk's transfer gets while activations are swapped. Laws
/// (test/law/bandwidth.hpp): as for `rate`, and never above it.
template <class P>
concept knows_swapping =
    bandwidth_policy<P> && requires(P const& p, hw::machine const& m, channel c) {
      { p.rate_beside_swap(m, c) } noexcept -> std::same_as<bandwidth>;
    };

/// Rate of a chunk's transfer while activations are swapped; any other policy's own rate.
template <bandwidth_policy P>
constexpr bandwidth rate_beside_swap(P const& policy, hw::machine const& m, channel c) noexcept {
  if constexpr (knows_swapping<P>) {
    return policy.rate_beside_swap(m, c);
  } else {
    static_assert(
        !requires { &P::rate_beside_swap; },
        "rate_beside_swap: a policy that knows swapping has bandwidth "
        "rate_beside_swap(hw::machine const&, link::channel) const noexcept; laws: "
        "protrain/link/derated.hpp");
    return policy.rate(m, c);
  }
}

/// The paper's: each channel at its own rate, and at a reduced, profiled share of it beside
/// swapping. Shares are per mille of the rate, at most 1000. By default the two transfers on a
/// link get half of it each, and nothing else is disturbed: profile the machine for better ones.
struct derated {
  using policy_tag = bandwidth_tag;
  std::uint32_t host_to_device = 500;
  std::uint32_t device_to_host = 500;
  std::uint32_t collective = 1000;
  std::uint32_t device_memory = 1000;
  std::uint32_t host_memory = 1000;

  constexpr bandwidth rate(hw::machine const& m, channel c) const noexcept {
    return fixed{}.rate(m, c);
  }
  /// Rounded down, but never to 0.
  constexpr bandwidth rate_beside_swap(hw::machine const& m, channel c) const noexcept {
    std::uint64_t const alone = rate(m, c).per_second;
    std::uint64_t const part = mul_div(alone, std::min<std::uint32_t>(share(c), 1000), 1000);
    return {std::max(part, std::min<std::uint64_t>(alone, 1))};
  }
  bool operator==(derated const&) const = default;

 private:
  constexpr std::uint32_t share(channel c) const noexcept {
    switch (c) {
      case channel::host_to_device:
        return host_to_device;
      case channel::device_to_host:
        return device_to_host;
      case channel::collective:
        return collective;
      case channel::device_memory:
        return device_memory;
      case channel::host_memory:
        return host_memory;
    }
    return 1000;
  }
};
static_assert(knows_swapping<derated> && !knows_swapping<fixed>);

/// Shares as they were measured on `m`: of copies while others go the other way, and of the CPU
/// optimizer beside both. What isn't known is not disturbed.
constexpr derated derated_by(hw::machine const& m) noexcept {
  auto const share = [](bandwidth alone, bandwidth together) -> std::uint32_t {
    std::uint64_t const least = hw::beside(alone, together).per_second;
    return alone.per_second == 0
               ? 1000
               : static_cast<std::uint32_t>(mul_div(least, 1000, alone.per_second));
  };
  return {.host_to_device = share(m.host_to_device, m.concurrent.both_ways.host_to_device),
          .device_to_host = share(m.device_to_host, m.concurrent.both_ways.device_to_host),
          .host_memory = share(m.host_bandwidth, m.concurrent.update_beside_copies)};
}

}  // namespace protrain::inline v0::link
