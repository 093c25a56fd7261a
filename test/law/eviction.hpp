// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::eviction_policy. Policies under test are default-constructible.

#include "protrain/chunk/eviction.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// Residents in no particular order of use; ids differ.
inline std::vector<chunk::resident> random_residents(random_source& r) {
  std::vector<chunk::resident> out;
  std::uint64_t const n = r.between(1, 20);
  for (std::uint32_t i = 0; i < n; ++i) {
    std::uint32_t const next = r.chance(20) ? chunk::never : r.between32(100, 200);
    std::uint32_t const last = r.chance(10) ? chunk::never : r.between32(0, 99);
    out.push_back({.id = {i * 7 + 3},
                   .last_use = last,
                   .next_use = next,
                   .arrived = r.between32(0, last == chunk::never ? 99 : last)});
  }
  return out;
}

/// The first law that `policy` breaks; empty if it keeps them all.
template <chunk::eviction_policy P>
std::string broken_eviction_law(P const& policy) {
  random_source r(11);
  for (int i = 0; i < 500; ++i) {
    std::vector<chunk::resident> const in = random_residents(r);
    std::size_t const victim = policy.victim(in);
    if (victim >= in.size()) {
      return "the index is inside";
    }
    if (victim != P(policy).victim(std::vector(in))) {
      return "equal inputs, equal answers";
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an eviction policy", P, eviction_laws) {
  P const policy{};
  CHECK(broken_eviction_law(policy) == "");
  random_source r(12);
  std::vector<chunk::resident> const in = random_residents(r);
  CHECK(chunk::evict_one(policy, in).value() == policy.victim(in));
  CHECK(chunk::evict_one(policy, {}).failure().code == errc::nothing_to_evict);
}

}  // namespace protrain::test
