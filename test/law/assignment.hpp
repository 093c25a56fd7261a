// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of activation::assignment_policy. Policies under test are default-constructible.

#include "protrain/activation/assignment.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace protrain::test {

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
    activation::counts const c{.swap = r.between32(0, 20),
                               .checkpoint = r.between32(0, 20),
                               .interval = r.between32(1, 5)};
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
  }
}

}  // namespace protrain::test
