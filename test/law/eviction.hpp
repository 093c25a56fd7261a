// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of chunk::eviction_policy. Policies under test are default-constructible.

#include "protrain/chunk/eviction.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
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

TEST_CASE_TEMPLATE_DEFINE("laws of an eviction policy", P, eviction_laws) {
  static_assert(chunk::eviction_policy<P>);
  P const policy{};
  random_source r(11);
  for (int i = 0; i < 500; ++i) {
    CAPTURE(i);
    std::vector<chunk::resident> const in = random_residents(r);
    std::size_t const victim = policy.victim(in);
    CHECK(victim < in.size());
    CHECK(victim == P(policy).victim(std::vector(in)));
    CHECK(chunk::evict_one(policy, in).value() == victim);
  }
  CHECK(policy == P{});
  CHECK(chunk::evict_one(policy, {}).failure().code == errc::nothing_to_evict);
}

}  // namespace protrain::test
