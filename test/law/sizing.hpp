// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::sizing_policy. Policies under test are default-constructible.

#include "protrain/chunk/sizing.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::test {

TEST_CASE_TEMPLATE_DEFINE("laws of a sizing policy", P, sizing_laws) {
  static_assert(chunk::sizing_policy<P>);
  P const policy{};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    CAPTURE(seed);
    trace::trace t = make_case(seed).facts;
    t.job.world = 1 + seed % 7;
    std::vector<std::uint64_t> sizes = policy.capacities(t);
    REQUIRE(!sizes.empty());
    CHECK(sizes == P(policy).capacities(trace::trace(t)));
    for (std::uint64_t const size : sizes) {
      CHECK(size > 0);
      CHECK(size % (element_granule * t.job.world) == 0);
    }
    std::sort(sizes.begin(), sizes.end());
    CHECK(std::adjacent_find(sizes.begin(), sizes.end()) == sizes.end());
  }
}

}  // namespace protrain::test
