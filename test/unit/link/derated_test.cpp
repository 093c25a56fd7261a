// SPDX-License-Identifier: Apache-2.0
// Rates beside swapping: the laws over shipped and foreign policies, and the shares of `derated`.

#include "protrain/link/derated.hpp"

#include "test/law/bandwidth.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace derated_test {

namespace {

using namespace protrain;
using link::channel;

struct mute {  // knows nothing of swapping
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.collective; }
  bool operator==(mute const&) const = default;
};
struct third {  // knows, with a value
  using policy_tag = link::bandwidth_tag;
  std::uint64_t by = 3;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.host_to_device; }
  bandwidth rate_beside_swap(hw::machine const& m, channel) const noexcept {
    return {m.host_to_device.per_second / by};
  }
  bool operator==(third const&) const = default;
};
static_assert(link::knows_swapping<third> && !link::knows_swapping<mute>);

TEST_CASE_TEMPLATE_INVOKE(test::bandwidth_laws, link::derated, mute, third);
TEST_CASE_TEMPLATE_INVOKE(test::swapping_laws, link::derated, link::fixed, mute, third);

/// Breaks one law of rates beside swapping, and none of rates alone.
enum class breach : std::uint8_t { faster_beside, stands_still, slows_down };
template <breach How>
struct lawless {
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.device_bandwidth; }
  bandwidth rate_beside_swap(hw::machine const& m, channel) const noexcept {
    std::uint64_t const alone = m.device_bandwidth.per_second;
    return {How == breach::stands_still    ? 0
            : How == breach::faster_beside ? alone + 1
                                           : ~std::uint64_t{0} / alone};
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of rates beside swapping are found out") {
  using test::broken_swapping_law;
  CHECK(test::broken_bandwidth_law(lawless<breach::faster_beside>{}) == "");
  CHECK(broken_swapping_law(lawless<breach::faster_beside>{}) == "never above rate");
  CHECK(broken_swapping_law(lawless<breach::stands_still>{}) == "rates are positive");
  CHECK(broken_swapping_law(lawless<breach::slows_down>{}) ==
        "a machine with higher rates never has a lower one");
}

constexpr hw::machine small{.host_to_device = {10'000},
                            .device_to_host = {20'000},
                            .device_bandwidth = {30'000},
                            .host_bandwidth = {40'000},
                            .collective = {50'000}};

TEST_CASE("alone, derated is fixed") {
  for (channel const c : test::all_channels) {
    CHECK(link::derated{.host_to_device = 1, .collective = 2}.rate(small, c) ==
          link::fixed{}.rate(small, c));
  }
}

TEST_CASE("each channel has a share of its own") {
  link::derated const policy{.host_to_device = 100,
                             .device_to_host = 200,
                             .collective = 300,
                             .device_memory = 400,
                             .host_memory = 500};
  CHECK(policy.rate_beside_swap(small, channel::host_to_device).per_second == 1'000);
  CHECK(policy.rate_beside_swap(small, channel::device_to_host).per_second == 4'000);
  CHECK(policy.rate_beside_swap(small, channel::collective).per_second == 15'000);
  CHECK(policy.rate_beside_swap(small, channel::device_memory).per_second == 12'000);
  CHECK(policy.rate_beside_swap(small, channel::host_memory).per_second == 20'000);
}

TEST_CASE("shares are clamped to what the laws allow") {
  link::derated const policy{.host_to_device = 0, .device_to_host = 5000};
  CHECK(policy.rate_beside_swap(small, channel::host_to_device).per_second == 1);
  CHECK(policy.rate_beside_swap(small, channel::device_to_host).per_second == 20'000);
  hw::machine const stopped{};
  CHECK(policy.rate_beside_swap(stopped, channel::host_to_device).per_second == 0);
}

TEST_CASE("shares as a machine was measured") {
  hw::machine m = small;
  CHECK(link::derated_by(m) == link::derated{.host_to_device = 1000, .device_to_host = 1000});
  m.concurrent.both_ways = {{7'500}, {30'000}};
  m.concurrent.update_beside_copies = {10'000};
  CHECK(link::derated_by(m) ==
        link::derated{.host_to_device = 750, .device_to_host = 1000, .host_memory = 250});
  CHECK(link::derated_by({}) == link::derated{.host_to_device = 1000, .device_to_host = 1000});
}

TEST_CASE("a rate near 64 bits does not wrap") {
  hw::machine const fast{.host_to_device = {~std::uint64_t{0}}};
  CHECK(link::derated{.host_to_device = 500}
            .rate_beside_swap(fast, channel::host_to_device)
            .per_second == ~std::uint64_t{0} / 2);
}

// 100 kB at half of 10 kB/s take 20 s.
static_assert(time_of(100'000,
                      link::derated{.host_to_device = 500}.rate_beside_swap(
                          small, channel::host_to_device)) == picoseconds{20'000'000'000'000});

}  // namespace

}  // namespace derated_test
