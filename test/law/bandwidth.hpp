// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of link::bandwidth_policy, and of what it may know about swapping. Policies under test
// are default-constructible.

#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>

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

/// The first law that `rate(machine, channel)` breaks; empty if it keeps them all.
template <class Rate>
std::string broken_rate_law(Rate const& rate) {
  for (auto const name : hw::preset_names) {
    hw::machine const m = hw::preset(name).value();
    for (link::channel const c : all_channels) {
      if (rate(m, c).per_second == 0) {
        return "rates are positive";
      }
      if (rate(m, c) != rate(hw::machine(m), c)) {
        return "equal inputs, equal answers";
      }
      for (std::uint64_t const by : {1U, 2U, 10U}) {
        if (rate(faster(m, by), c) < rate(m, c)) {
          return "a machine with higher rates never has a lower one";
        }
      }
    }
  }
  return "";
}

template <link::bandwidth_policy P>
std::string broken_bandwidth_law(P const& policy) {
  return broken_rate_law(
      [&](hw::machine const& m, link::channel c) { return P(policy).rate(m, c); });
}

TEST_CASE_TEMPLATE_DEFINE("laws of a bandwidth policy", P, bandwidth_laws) {
  P const policy{};
  CHECK(broken_bandwidth_law(policy) == "");
  for (auto const name : hw::preset_names) {
    hw::machine const m = hw::preset(name).value();
    for (link::channel const c : all_channels) {
      CHECK(link::copy_time(policy, m, c, 0) == picoseconds{});
      CHECK(link::copy_time(policy, m, c, 1) > m.copy_latency);
      CHECK(link::copy_time(policy, m, c, 2048) >= link::copy_time(policy, m, c, 1024));
      CHECK(link::copy_time(policy, faster(m, 2), c, 4096) <= link::copy_time(policy, m, c, 4096));
    }
  }
}

/// The first law of rates beside swapping that `policy` breaks; empty if it keeps them all.
template <link::bandwidth_policy P>
std::string broken_swapping_law(P const& policy) {
  for (auto const name : hw::preset_names) {
    hw::machine const m = hw::preset(name).value();
    for (link::channel const c : all_channels) {
      bandwidth const beside = link::rate_beside_swap(policy, m, c);
      if (beside > policy.rate(m, c)) {
        return "never above rate";
      }
      if (!link::knows_swapping<P> && beside != policy.rate(m, c)) {
        return "the policy's own rate";
      }
    }
  }
  return broken_rate_law([&](hw::machine const& m, link::channel c) {
    return link::rate_beside_swap(P(policy), m, c);
  });
}

TEST_CASE_TEMPLATE_DEFINE("laws of rates beside swapping", P, swapping_laws) {
  CHECK(broken_swapping_law(P{}) == "");
}

}  // namespace protrain::test
