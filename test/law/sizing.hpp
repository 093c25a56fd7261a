// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::sizing_policy. Policies under test are default-constructible.

#include "protrain/chunk/sizing.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// The first law that `policy` breaks; empty if it keeps them all.
template <chunk::sizing_policy P>
std::string broken_sizing_law(P const& policy) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    trace::trace t = make_case(seed).facts;
    t.job.world = 1 + seed % 7;
    std::vector<std::uint64_t> sizes = policy.capacities(t);
    if (sizes.empty()) {
      return "at least one";
    }
    if (sizes != P(policy).capacities(trace::trace(t))) {
      return "equal inputs, equal answers";
    }
    for (std::uint64_t const size : sizes) {
      if (size == 0 || size % (element_granule * t.job.world) != 0) {
        return "each positive, a multiple of a granule per rank";
      }
    }
    std::sort(sizes.begin(), sizes.end());
    if (std::adjacent_find(sizes.begin(), sizes.end()) != sizes.end()) {
      return "none twice";
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a sizing policy", P, sizing_laws) {
  CHECK(broken_sizing_law(P{}) == "");
}

}  // namespace protrain::test
