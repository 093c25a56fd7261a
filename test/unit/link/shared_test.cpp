// SPDX-License-Identifier: Apache-2.0
// Rates among other work: the laws over shipped and foreign policies, and what `shared` makes of a
// machine's figures.

#include "protrain/link/shared.hpp"

#include "protrain/core/math.hpp"
#include "test/law/bandwidth.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace shared_test {

namespace {

using namespace protrain;
using link::channel;
using link::load;

struct mute {  // knows nothing of contention
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.device_to_host; }
  bool operator==(mute const&) const = default;
};
struct even {  // the least that knows it: a channel is shared by what runs on it
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.device_bandwidth; }
  bandwidth rate_among(hw::machine const& m, channel c, load const& l) const noexcept {
    return {m.device_bandwidth.per_second / l.on(c)};
  }
  bool operator==(even const&) const = default;
};
struct crowded {  // with a value: everything slows everything
  using policy_tag = link::bandwidth_tag;
  std::uint32_t per_mille = 50;
  bandwidth rate(hw::machine const& m, channel c) const noexcept {
    return link::fixed{}.rate(m, c);
  }
  bandwidth rate_among(hw::machine const& m, channel c, load const& l) const noexcept {
    std::uint32_t const others = l.host_to_device + l.device_to_host + l.collective +
                                 l.device_memory + l.host_memory + l.compute - 1;
    return {mul_div(rate(m, c).per_second, 1000, 1000 + per_mille * others)};
  }
  bool operator==(crowded const&) const = default;
};
static_assert(link::knows_contention<even> && link::knows_contention<crowded>);
static_assert(!link::knows_contention<mute> && !link::knows_contention<link::derated>);

TEST_CASE_TEMPLATE_INVOKE(test::bandwidth_laws, link::shared, even, crowded);
TEST_CASE_TEMPLATE_INVOKE(
    test::contention_laws, link::shared, link::fixed, link::derated, mute, even, crowded);
TEST_CASE_TEMPLATE_INVOKE(test::swapping_laws, link::shared);

/// Breaks one law of rates among other work, and none of rates alone.
enum class breach : std::uint8_t { faster_among, slower_alone, gains_by_more, stands_still };
template <breach How>
struct lawless {
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, channel) const noexcept { return m.device_bandwidth; }
  bandwidth rate_among(hw::machine const& m, channel c, load const& l) const noexcept {
    std::uint64_t const alone = m.device_bandwidth.per_second;
    switch (How) {
      case breach::faster_among:
        return {alone + 1};
      case breach::slower_alone:
        return {alone - 1};
      case breach::gains_by_more:
        return {l.on(c) == 2 && l.compute > 0 ? alone : alone / l.on(c)};
      case breach::stands_still:
        return {l.on(c) > 1 ? 0 : alone};
    }
    return {};
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of rates among other work are found out") {
  using test::broken_contention_law;
  CHECK(test::broken_bandwidth_law(lawless<breach::faster_among>{}) == "");
  CHECK(broken_contention_law(lawless<breach::faster_among>{}) == "never above rate");
  CHECK(broken_contention_law(lawless<breach::slower_alone>{}) == "alone, the policy's own rate");
  CHECK(broken_contention_law(lawless<breach::gains_by_more>{}) == "never higher when more runs");
  CHECK(broken_contention_law(lawless<breach::stands_still>{}) == "rates are positive");
}

constexpr hw::machine known{.host_to_device = {100},
                            .device_to_host = {200},
                            .device_bandwidth = {10'000},
                            .host_bandwidth = {1'000},
                            .collective = {600},
                            .concurrent = {.both_ways = {{90}, {170}},
                                           .beside_compute = {{95}, {160}},
                                           .beside_update = {{70}, {190}},
                                           .all_ranks = {{10}, {20}},
                                           .update_beside_copies = {400}}};

constexpr std::uint64_t among(channel c, load const& l, hw::machine const& m = known) {
  return link::shared{}.rate_among(m, c, l).per_second;
}
constexpr auto up = channel::host_to_device;
constexpr auto down = channel::device_to_host;

TEST_CASE("copies have the least of what was measured beside what runs") {
  CHECK(among(up, {.host_to_device = 1}) == 100);
  CHECK(among(up, {.host_to_device = 1, .device_to_host = 1}) == 90);
  CHECK(among(down, {.host_to_device = 1, .device_to_host = 1}) == 170);
  CHECK(among(up, {.host_to_device = 1, .compute = 1}) == 95);
  CHECK(among(down, {.host_to_device = 1, .device_to_host = 1, .compute = 1}) == 160);
  CHECK(among(up, {.host_to_device = 1, .host_memory = 1}) == 70);
  CHECK(among(up, {.host_to_device = 1, .device_to_host = 1, .host_memory = 1, .compute = 1}) ==
        70);
  CHECK(among(down, {.device_to_host = 1, .host_memory = 1}) == 190);
  // Neither collectives nor the device's memory.
  CHECK(among(up, {.host_to_device = 1, .collective = 2, .device_memory = 1}) == 100);
}

TEST_CASE("the CPU optimizer loses to copies, half as much to copies one way") {
  CHECK(among(channel::host_memory, {.host_memory = 1, .compute = 1}) == 1'000);
  CHECK(among(channel::host_memory, {.host_to_device = 1, .device_to_host = 1, .host_memory = 1}) ==
        400);
  CHECK(among(channel::host_memory, {.host_to_device = 1, .host_memory = 1}) == 700);
  CHECK(among(channel::host_memory, {.device_to_host = 1, .host_memory = 1}) == 700);
}

TEST_CASE("what runs on a channel shares it") {
  CHECK(among(channel::collective, {.collective = 1, .compute = 1}) == 600);
  CHECK(among(channel::collective, {.collective = 2}) == 300);
  CHECK(among(channel::collective, {.collective = 3}) == 200);
  CHECK(among(channel::device_memory, {.host_to_device = 1, .device_memory = 1}) == 10'000);
  CHECK(among(channel::device_memory, {.device_memory = 3}) == 3'333);
  CHECK(among(up, {.host_to_device = 2, .device_to_host = 1}) == 45);
}

TEST_CASE("what is not known is not disturbed, and a figure above the rate alone is no gain") {
  hw::machine m = known;
  m.concurrent.beside_update = {};
  CHECK(among(up, {.host_to_device = 1, .host_memory = 1}, m) == 100);
  m.concurrent.beside_update.host_to_device = {120};
  CHECK(among(up, {.host_to_device = 1, .host_memory = 1}, m) == 100);
  m.concurrent = {.all_ranks = {{10}, {20}}};  // ranks are another matter
  for (load const& l : test::loads_up_to(2)) {
    for (channel const c : test::all_channels) {
      CHECK(link::shared{}.rate_among(m, c, l) == link::fixed{}.rate(m, c));
    }
  }
}

TEST_CASE("a share is never 0") {
  hw::machine m = known;
  m.collective = {2};
  CHECK(among(channel::collective, {.collective = 3}, m) == 1);
  m.collective = {};
  CHECK(among(channel::collective, {.collective = 3}, m) == 0);
}

// An H200 beside AdamW and copies the other way, as it was measured.
static_assert(among(up,
                    {.host_to_device = 1, .device_to_host = 1, .host_memory = 1},
                    hw::h200x1()) == 39'000'000'000);

}  // namespace

}  // namespace shared_test
