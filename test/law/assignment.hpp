// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of activation::assignment_policy. Policies under test are default-constructible.

#include "protrain/activation/assignment.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::test {

/// What `assign` makes of a policy: levels that blocks can hold, or none.
template <class P>
void check_levels(P const& policy,
                  random_source& r,
                  std::vector<activation::pin> const& pins,
                  activation::counts const& c) {
  std::vector<std::uint8_t> depths;
  for (std::size_t b = 0; b < pins.size(); ++b) {
    depths.push_back(static_cast<std::uint8_t>(r.between(0, trace::most_levels)));
  }
  activation::assignment const out = activation::assign(policy, pins, depths, c);
  CHECK(out.strategies == policy.assign(pins, c));
  CHECK(out == activation::assign(P(policy), std::vector(pins), std::vector(depths), c));
  if (out.levels.empty()) {
    return;
  }
  CHECK(activation::level_policy<P>);
  REQUIRE(out.levels.size() == pins.size());
  std::array<std::uint32_t, trace::most_levels> held{};
  for (std::size_t b = 0; b < pins.size(); ++b) {
    bool const may =
        pins[b] == activation::pin::free && out.strategies[b] == activation::strategy::keep;
    REQUIRE(out.levels[b] <= (may ? depths[b] : 0));
    if (out.levels[b] > 0) {
      ++held[out.levels[b] - 1U];
    }
  }
  for (std::size_t k = 0; k < held.size(); ++k) {
    CHECK(held[k] <= c.levels[k]);
  }
}

TEST_CASE_TEMPLATE_DEFINE("laws of an assignment policy", P, assignment_laws) {
  static_assert(activation::assignment_policy<P>);
  P const policy{};
  random_source r(13);
  for (int i = 0; i < 500; ++i) {
    CAPTURE(i);
    std::vector<activation::pin> pins;
    for (std::uint64_t n = r.between(0, 20); n > 0; --n) {
      pins.push_back(r.chance(60) ? activation::pin::free
                                  : static_cast<activation::pin>(r.between(1, 3)));
    }
    activation::counts const c{
        .swap = r.between32(0, 20),
        .checkpoint = r.between32(0, 20),
        .interval = r.between32(1, 5),
        .levels = {r.between32(0, 8), r.between32(0, 8), r.between32(0, 8), r.between32(0, 8)}};
    auto const out = policy.assign(pins, c);
    REQUIRE(out.size() == pins.size());
    CHECK(out == P(policy).assign(std::vector(pins), c));
    std::uint32_t swapped = 0;
    std::uint32_t checkpointed = 0;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      if (pins[b] != activation::pin::free) {
        CHECK(out[b] == activation::pinned(pins[b]));
        continue;
      }
      swapped += out[b] == activation::strategy::swap ? 1U : 0U;
      checkpointed += out[b] == activation::strategy::checkpoint ? 1U : 0U;
    }
    CHECK(swapped <= c.swap);
    CHECK(checkpointed <= c.checkpoint);
    check_levels(policy, r, pins, c);
  }
}

}  // namespace protrain::test
