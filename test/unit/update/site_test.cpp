// SPDX-License-Identifier: Apache-2.0
// Update sites: the laws over shipped and foreign policies.

#include "protrain/update/site.hpp"

#include "test/law/update.hpp"

#include <doctest/doctest.h>

namespace site_test {

namespace {

using namespace protrain;

/// The least that is a policy.
struct always_gpu {
  using policy_tag = update::site_tag;
  update::site choose(bool) const noexcept { return update::site::gpu; }
  bool operator==(always_gpu const&) const = default;
};

/// A policy with a value.
struct gpu_when {
  using policy_tag = update::site_tag;
  bool streamed = true;
  update::site choose(bool persistent) const noexcept {
    return persistent || streamed ? update::site::gpu : update::site::cpu;
  }
  bool operator==(gpu_when const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::site_laws, update::gpu_if_persistent, always_gpu, gpu_when);

enum class breach : std::uint8_t { always_cpu, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = update::site_tag;
  update::site choose(bool persistent) const noexcept {
    static unsigned calls = 0;
    bool const host = How == breach::always_cpu || (!persistent && ++calls % 2 != 0);
    return host ? update::site::cpu : update::site::gpu;
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of update sites are found out") {
  CHECK(test::broken_site_law(lawless<breach::always_cpu>{}) ==
        "a persistent chunk updates on the GPU");
  CHECK(test::broken_site_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

TEST_CASE("the paper's site is where the chunk lives") {
  CHECK(update::gpu_if_persistent{}.choose(true) == update::site::gpu);
  CHECK(update::gpu_if_persistent{}.choose(false) == update::site::cpu);
}

}  // namespace

}  // namespace site_test
