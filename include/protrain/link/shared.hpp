// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rates that depend on what else runs: an optional capability of bandwidth policies, and the policy
// that has it, processor sharing.

#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>

namespace protrain::inline v0::link {

/// Pieces of work that one rank runs at once, by what limits them.
struct load {
  std::uint32_t host_to_device = 0;
  std::uint32_t device_to_host = 0;
  std::uint32_t collective = 0;
  std::uint32_t device_memory = 0;
  std::uint32_t host_memory = 0;
  std::uint32_t compute = 0;  ///< passes of blocks: no channel limits them, but they disturb copies
  bool operator==(load const&) const = default;

  constexpr std::uint32_t on(channel c) const noexcept {
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
    return 0;
  }
};

/// A policy that knows what one piece of work on a channel gets among others; the load counts it
/// too. Laws (test/law/bandwidth.hpp): as for `rate`; `rate` itself when it is alone, never above
/// it, and never higher when more runs.
template <class P>
concept knows_contention =
    bandwidth_policy<P> && requires(P const& p, hw::machine const& m, channel c, load const& l) {
      { p.rate_among(m, c, l) } noexcept -> std::same_as<bandwidth>;
    };

/// Rate of one piece of work among `l`; any other policy's own rate.
template <bandwidth_policy P>
constexpr bandwidth rate_among(P const& policy,
                               hw::machine const& m,
                               channel c,
                               load const& l) noexcept {
  if constexpr (knows_contention<P>) {
    return policy.rate_among(m, c, l);
  } else {
    static_assert(
        !requires { &P::rate_among; },
        "rate_among: a policy that knows contention has bandwidth rate_among(hw::machine const&, "
        "link::channel, link::load const&) const noexcept; laws: protrain/link/shared.hpp");
    return policy.rate(m, c);
  }
}

/// Each channel is shared evenly by what runs on it, and has at most the least of the rates that were
/// measured beside what else runs (`hw::concurrent_rates`): copies beside copies the other way,
/// beside compute and beside the CPU optimizer, the CPU optimizer beside copies. What isn't known is
/// not disturbed, and a machine of which none of these is known is not disturbed by anything: there
/// `shared` is `fixed`.
struct shared {
  using policy_tag = bandwidth_tag;

  constexpr bandwidth rate(hw::machine const& m, channel c) const noexcept {
    return fixed{}.rate(m, c);
  }
  /// Rounded down, but never to 0.
  constexpr bandwidth rate_among(hw::machine const& m, channel c, load const& l) const noexcept {
    bandwidth const alone = rate(m, c);
    if (!measured(m.concurrent)) {
      return alone;
    }
    std::uint64_t const whole = limit(m.concurrent, alone, c, l).per_second;
    std::uint64_t const part = whole / std::max(1U, l.on(c));
    return {std::max(part, std::min<std::uint64_t>(alone.per_second, 1))};
  }
  bool operator==(shared const&) const = default;

 private:
  /// What ranks take from each other is in the rates of each of them already (cost::rates_of).
  static constexpr bool measured(hw::concurrent_rates const& r) noexcept {
    return r.both_ways != hw::copy_rates{} || r.beside_compute != hw::copy_rates{} ||
           r.beside_update != hw::copy_rates{} || r.update_beside_copies != bandwidth{};
  }
  static constexpr bandwidth limit(hw::concurrent_rates const& r,
                                   bandwidth alone,
                                   channel c,
                                   load const& l) noexcept {
    switch (c) {
      case channel::host_to_device:
        return copies(r, &hw::copy_rates::host_to_device, alone, l.device_to_host > 0, l);
      case channel::device_to_host:
        return copies(r, &hw::copy_rates::device_to_host, alone, l.host_to_device > 0, l);
      case channel::host_memory:
        return update(r, alone, l);
      case channel::collective:
      case channel::device_memory:
        return alone;
    }
    return alone;
  }
  static constexpr bandwidth copies(hw::concurrent_rates const& r,
                                    bandwidth hw::copy_rates::* way,
                                    bandwidth alone,
                                    bool both_ways,
                                    load const& l) noexcept {
    bandwidth out = both_ways ? hw::beside(alone, r.both_ways.*way) : alone;
    out = l.compute > 0 ? hw::beside(out, r.beside_compute.*way) : out;
    return l.host_memory > 0 ? hw::beside(out, r.beside_update.*way) : out;
  }
  /// Measured beside copies both ways; copies one way are taken to cost half as much. (On an H200
  /// host both leave 56 %, copies up 77 % and copies down 64 %.)
  static constexpr bandwidth update(hw::concurrent_rates const& r,
                                    bandwidth alone,
                                    load const& l) noexcept {
    bandwidth const least = hw::beside(alone, r.update_beside_copies);
    if (l.host_to_device > 0 && l.device_to_host > 0) {
      return least;
    }
    bool const copies = l.host_to_device > 0 || l.device_to_host > 0;
    return copies ? bandwidth{alone.per_second - (alone.per_second - least.per_second) / 2} : alone;
  }
};
static_assert(knows_contention<shared> && !knows_contention<fixed>);

}  // namespace protrain::inline v0::link
