// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of link::bandwidth_policy, and of what it may know about swapping and contention. Policies
// under test are default-constructible.

#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/link/shared.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

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

/// Presets, and a machine for each figure of contention that is the only one known.
inline std::vector<hw::machine> machines_with_contention() {
  std::vector<hw::machine> out;
  for (auto const name : hw::preset_names) {
    out.push_back(hw::preset(name).value());
  }
  hw::machine plain = hw::h200x1();
  plain.concurrent = {};
  for (auto const figure : {&hw::concurrent_rates::both_ways,
                            &hw::concurrent_rates::beside_compute,
                            &hw::concurrent_rates::beside_update,
                            &hw::concurrent_rates::all_ranks}) {
    out.push_back(plain);
    out.back().concurrent.*figure = {{7}, {5}};
  }
  out.push_back(plain);
  out.back().concurrent.update_beside_copies = {3};
  return out;
}

inline constexpr std::array all_loads{&link::load::host_to_device,
                                      &link::load::device_to_host,
                                      &link::load::collective,
                                      &link::load::device_memory,
                                      &link::load::host_memory,
                                      &link::load::compute};

/// Every load of at most `most` pieces of work of each kind.
inline std::vector<link::load> loads_up_to(std::uint32_t most) {
  std::vector<link::load> out{link::load{}};
  for (auto const kind : all_loads) {
    for (std::size_t i = 0, before = out.size(); i < before; ++i) {
      for (std::uint32_t n = 1; n <= most; ++n) {
        out.push_back(out[i]);
        out.back().*kind = n;
      }
    }
  }
  return out;
}

/// The first law of rates among other work that `policy` breaks on this machine.
template <link::bandwidth_policy P>
std::string broken_contention_law(P const& policy, hw::machine const& m) {
  for (link::load const& l : loads_up_to(2)) {
    for (link::channel const c : all_channels) {
      if (l.on(c) == 0) {
        continue;  // it counts the work itself
      }
      bandwidth const among = link::rate_among(policy, m, c, l);
      bool one = l.on(c) == 1;
      for (auto const kind : all_loads) {
        link::load more = l;
        ++(more.*kind);
        one = one && (l.*kind == 0 || more.on(c) != l.on(c));
        if (link::rate_among(policy, m, c, more) > among) {
          return "never higher when more runs";
        }
      }
      if (among > policy.rate(m, c)) {
        return "never above rate";
      }
      if (among != policy.rate(m, c) && (one || !link::knows_contention<P>)) {
        return "alone, the policy's own rate";
      }
    }
  }
  return "";
}

/// On any machine, and the laws of `rate` among full loads.
template <link::bandwidth_policy P>
std::string broken_contention_law(P const& policy) {
  for (hw::machine const& m : machines_with_contention()) {
    if (std::string broken = broken_contention_law(policy, m); !broken.empty()) {
      return broken;
    }
  }
  link::load const full{1, 1, 2, 1, 1, 1};
  return broken_rate_law([&](hw::machine const& m, link::channel c) {
    return link::rate_among(P(policy), m, c, full);
  });
}

TEST_CASE_TEMPLATE_DEFINE("laws of rates among other work", P, contention_laws) {
  CHECK(broken_contention_law(P{}) == "");
}

}  // namespace protrain::test
