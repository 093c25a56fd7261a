// SPDX-License-Identifier: Apache-2.0
// Update sites: the laws over shipped and foreign policies.

#include "protrain/update/site.hpp"

#include "test/law/update.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace site_test {

namespace {

using namespace protrain;

/// The least that is a policy.
struct never {
  using policy_tag = update::site_tag;
  std::uint32_t most_streamed(std::uint32_t) const noexcept { return 0; }
  update::site choose(update::site_facts const& c) const noexcept {
    return c.persistent ? update::site::gpu : update::site::cpu;
  }
  bool operator==(never const&) const = default;
};

/// A policy with a value: every other chunk, as far as that goes, and not more than a share.
struct spread {
  using policy_tag = update::site_tag;
  std::uint32_t percent = 50;
  std::uint32_t most_streamed(std::uint32_t moving) const noexcept {
    return moving * percent / 100;
  }
  update::site choose(update::site_facts const& c) const noexcept {
    if (c.persistent) {
      return update::site::gpu;
    }
    std::uint64_t const n = c.streamed;
    bool const here = (c.position + 1) * n / c.moving > c.position * n / c.moving;
    return here ? update::site::streamed : update::site::cpu;
  }
  bool operator==(spread const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(
    test::site_laws, update::gpu_if_persistent, update::cpu_or_streamed, never, spread);

enum class breach : std::uint8_t { always_cpu, all_gpu, too_many, none_streamed, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = update::site_tag;
  std::uint32_t most_streamed(std::uint32_t moving) const noexcept {
    return How == breach::too_many ? moving + 1 : moving;
  }
  update::site choose(update::site_facts const& c) const noexcept {
    static unsigned calls = 0;
    if (c.persistent ? How != breach::always_cpu : How == breach::all_gpu) {
      return update::site::gpu;
    }
    bool const streamed = How == breach::fickle ? ++calls % 2 != 0 : c.position < c.streamed;
    return streamed && How != breach::none_streamed ? update::site::streamed : update::site::cpu;
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of update sites are found out") {
  CHECK(test::broken_site_law(lawless<breach::always_cpu>{}) ==
        "a persistent chunk updates on the GPU");
  CHECK(test::broken_site_law(lawless<breach::all_gpu>{}) ==
        "a chunk that isn't persistent doesn't update on the GPU");
  CHECK(test::broken_site_law(lawless<breach::too_many>{}) == "never more than are moving");
  CHECK(test::broken_site_law(lawless<breach::none_streamed>{}) ==
        "as many are streamed as the facts say");
  CHECK(test::broken_site_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

TEST_CASE("the paper's site is where the chunk lives") {
  CHECK(update::gpu_if_persistent{}.choose({.persistent = true}) == update::site::gpu);
  CHECK(update::gpu_if_persistent{}.choose({.moving = 1}) == update::site::cpu);
  CHECK(update::gpu_if_persistent{}.most_streamed(9) == 0);
}

TEST_CASE("the first chunks are streamed, as many as the planner wants") {
  constexpr update::cpu_or_streamed policy;
  for (std::uint32_t at = 0; at < 7; ++at) {
    CHECK(policy.choose({.position = at, .moving = 7, .streamed = 3}) ==
          (at < 3 ? update::site::streamed : update::site::cpu));
  }
  CHECK(policy.most_streamed(7) == 7);
}

TEST_CASE("sites have names") {
  CHECK(update::name_of(update::site::gpu) == "gpu");
  CHECK(update::name_of(update::site::cpu) == "cpu");
  CHECK(update::name_of(update::site::streamed) == "streamed");
}

}  // namespace

}  // namespace site_test
