// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of link::bandwidth_policy, and of what it may know about swapping. Policies under test are default-constructible.

#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>

namespace protrain::test {

inline constexpr std::array all_channels{link::channel::host_to_device,
                                         link::channel::device_to_host,
                                         link::channel::collective,
                                         link::channel::device_memory,
                                         link::channel::host_memory};

/// The machine with every rate multiplied.
constexpr hw::machine faster(hw::machine m, std::uint64_t by) {
  for (bandwidth* const rate : {&m.host_to_device,
                                &m.device_to_host,
                                &m.device_bandwidth,
                                &m.host_bandwidth,
                                &m.collective}) {
    rate->per_second *= by;
  }
  return m;
}

TEST_CASE_TEMPLATE_DEFINE("laws of a bandwidth policy", P, bandwidth_laws) {
  static_assert(link::bandwidth_policy<P>);
  P const policy{};
  for (auto const name : hw::preset_names) {
    hw::machine const m = hw::preset(name).value();
    for (link::channel const c : all_channels) {
      CHECK(policy.rate(m, c).per_second > 0);
      CHECK(policy.rate(m, c) == P(policy).rate(hw::machine(m), c));
      for (std::uint64_t const by : {1U, 2U, 10U}) {
        CHECK(policy.rate(faster(m, by), c) >= policy.rate(m, c));
      }
      CHECK(link::copy_time(policy, m, c, 0) == picoseconds{});
      CHECK(link::copy_time(policy, m, c, 1) > m.copy_latency);
      CHECK(link::copy_time(policy, m, c, 2048) >= link::copy_time(policy, m, c, 1024));
      CHECK(link::copy_time(policy, faster(m, 2), c, 4096) <= link::copy_time(policy, m, c, 4096));
    }
  }
}

TEST_CASE_TEMPLATE_DEFINE("laws of rates beside swapping", P, swapping_laws) {
  static_assert(link::bandwidth_policy<P>);
  P const policy{};
  for (auto const name : hw::preset_names) {
    hw::machine const m = hw::preset(name).value();
    for (link::channel const c : all_channels) {
      bandwidth const beside = link::rate_beside_swap(policy, m, c);
      CHECK(beside.per_second > 0);
      CHECK(beside <= policy.rate(m, c));
      CHECK(beside == link::rate_beside_swap(P(policy), hw::machine(m), c));
      for (std::uint64_t const by : {1U, 2U, 10U}) {
        CHECK(link::rate_beside_swap(policy, faster(m, by), c) >= beside);
      }
      if constexpr (!link::knows_swapping<P>) {
        CHECK(beside == policy.rate(m, c));
      }
    }
  }
}

}  // namespace protrain::test
