// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::placement_policy. Policies under test are default-constructible.

#include "protrain/chunk/placement.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
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

/// The first law that `policy` breaks; empty if it keeps them all.
template <chunk::placement_policy P>
std::string broken_placement_law(P const& policy) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    chunk::layout const l = make_case(seed).layout;
    auto const chunks = static_cast<std::uint32_t>(l.chunks.size());
    std::vector<std::uint8_t> before(chunks, 0);
    std::vector<chunk::benefit> const of = random_benefits(chunks, seed);
    for (std::uint32_t n = 0; n <= chunks + 2; ++n) {
      std::vector<std::uint8_t> const flags = chunk::persistent_of(policy, l, of, n);
      if (flags.size() != chunks) {
        return "one flag per chunk";
      }
      if (flags != chunk::persistent_of(P(policy), chunk::layout(l), std::vector(of), n)) {
        return "equal inputs, equal answers";
      }
      if (std::count(flags.begin(), flags.end(), 1) != std::min(n, chunks) ||
          std::count(flags.begin(), flags.end(), 0) != chunks - std::min(n, chunks)) {
        return "min(n, chunks) of them set";
      }
      if (!std::equal(flags.begin(), flags.end(), before.begin(), std::greater_equal<>{})) {
        return "the choice for n + 1 contains the choice for n";
      }
      before = flags;
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a placement policy", P, placement_laws) {
  CHECK(broken_placement_law(P{}) == "");
}

}  // namespace protrain::test
