// SPDX-License-Identifier: Apache-2.0
// Bandwidth: the laws over shipped and foreign policies, and times of copies.

#include "protrain/link/bandwidth.hpp"

#include "test/law/bandwidth.hpp"

#include <doctest/doctest.h>

namespace bandwidth_test {

namespace {

using namespace protrain;

struct one_rate {  // the least that is a policy
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, link::channel) const noexcept { return m.host_to_device; }
  bool operator==(one_rate const&) const = default;
};
struct halved {  // with a value
  using policy_tag = link::bandwidth_tag;
  std::uint64_t by = 2;
  bandwidth rate(hw::machine const& m, link::channel c) const noexcept {
    return {link::fixed{}.rate(m, c).per_second / by};
  }
  bool operator==(halved const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::bandwidth_laws, link::fixed, one_rate, halved);

enum class breach : std::uint8_t { stands_still, slows_down, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, link::channel c) const noexcept {
    static std::uint64_t calls = 0;
    std::uint64_t const whole = link::fixed{}.rate(m, c).per_second;
    return {How == breach::stands_still ? 0 : How == breach::slows_down ? ~whole : whole + ++calls};
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of bandwidths are found out") {
  using test::broken_bandwidth_law;
  CHECK(broken_bandwidth_law(lawless<breach::stands_still>{}) == "rates are positive");
  CHECK(broken_bandwidth_law(lawless<breach::slows_down>{}) ==
        "a machine with higher rates never has a lower one");
  CHECK(broken_bandwidth_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

TEST_CASE("fixed gives each channel its own rate") {
  hw::machine const m{.host_to_device = {1},
                      .device_to_host = {2},
                      .device_bandwidth = {3},
                      .host_bandwidth = {4},
                      .collective = {5}};
  CHECK(link::fixed{}.rate(m, link::channel::host_to_device).per_second == 1);
  CHECK(link::fixed{}.rate(m, link::channel::device_to_host).per_second == 2);
  CHECK(link::fixed{}.rate(m, link::channel::device_memory).per_second == 3);
  CHECK(link::fixed{}.rate(m, link::channel::host_memory).per_second == 4);
  CHECK(link::fixed{}.rate(m, link::channel::collective).per_second == 5);
}

TEST_CASE("a copy takes its bytes over the rate, rounded up, and the latency") {
  hw::machine const m{.host_to_device = {3}, .copy_latency = 10_us};
  CHECK(link::copy_time(link::fixed{}, m, link::channel::host_to_device, 1).count() ==
        333'333'333'334 + 10'000'000);
  CHECK(link::copy_time(link::fixed{}, m, link::channel::host_to_device, 0).count() == 0);
}

}  // namespace

}  // namespace bandwidth_test
