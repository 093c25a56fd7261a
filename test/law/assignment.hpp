// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of activation::assignment_policy. Policies under test are default-constructible.

#include "protrain/activation/assignment.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// The first law that `policy` breaks; empty if it keeps them all.
template <activation::assignment_policy P>
std::string broken_assignment_law(P const& policy) {
  random_source r(13);
  for (int i = 0; i < 500; ++i) {
    std::vector<activation::pin> pins;
    for (std::uint64_t n = r.between(0, 20); n > 0; --n) {
      pins.push_back(r.chance(60) ? activation::pin::free
                                  : static_cast<activation::pin>(r.between(1, 3)));
    }
    activation::counts const c{.swap = r.between32(0, 20),
                               .checkpoint = r.between32(0, 20),
                               .interval = r.between32(1, 5)};
    auto const out = policy.assign(pins, c);
    if (out.size() != pins.size()) {
      return "one entry per block";
    }
    if (out != P(policy).assign(std::vector(pins), c)) {
      return "equal inputs, equal answers";
    }
    std::uint32_t swapped = 0;
    std::uint32_t checkpointed = 0;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      bool const pinned = pins[b] != activation::pin::free;
      if (pinned && out[b] != activation::pinned(pins[b])) {
        return "entries of pinned blocks are the pin";
      }
      swapped += !pinned && out[b] == activation::strategy::swap ? 1U : 0U;
      checkpointed += !pinned && out[b] == activation::strategy::checkpoint ? 1U : 0U;
    }
    if (swapped > c.swap) {
      return "at most counts.swap free blocks are swapped";
    }
    if (checkpointed > c.checkpoint) {
      return "at most counts.checkpoint free blocks are checkpointed";
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an assignment policy", P, assignment_laws) {
  CHECK(broken_assignment_law(P{}) == "");
}

}  // namespace protrain::test
