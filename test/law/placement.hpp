// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::placement_policy. Policies under test are default-constructible.

#include "protrain/chunk/placement.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::test {

/// Some equal, some that take nothing.
inline std::vector<chunk::benefit> random_benefits(std::size_t n, std::uint64_t seed) {
  random_source r(seed ^ 0xBEEFULL);
  std::vector<chunk::benefit> out;
  for (std::size_t i = 0; i < n; ++i) {
    out.push_back({.bytes = r.between(0, 4) * 256, .saved = {r.between(0, 5)}});
  }
  return out;
}

TEST_CASE_TEMPLATE_DEFINE("laws of a placement policy", P, placement_laws) {
  static_assert(chunk::placement_policy<P>);
  P const policy{};
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    CAPTURE(seed);
    chunk::layout const l = make_case(seed).layout;
    auto const chunks = static_cast<std::uint32_t>(l.chunks.size());
    std::vector<std::uint8_t> before(chunks, 0);
    std::vector<chunk::benefit> const of = random_benefits(chunks, seed);
    for (std::uint32_t n = 0; n <= chunks + 2; ++n) {
      std::vector<std::uint8_t> const flags = chunk::persistent_of(policy, l, of, n);
      REQUIRE(flags.size() == chunks);
      CHECK(flags == chunk::persistent_of(P(policy), chunk::layout(l), std::vector(of), n));
      CHECK(std::count(flags.begin(), flags.end(), 1) == std::min(n, chunks));
      CHECK(std::count(flags.begin(), flags.end(), 0) == chunks - std::min(n, chunks));
      for (std::uint32_t c = 0; c < chunks; ++c) {
        CHECK(flags[c] >= before[c]);
      }
      before = flags;
    }
  }
}

}  // namespace protrain::test
