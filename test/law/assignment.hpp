// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of activation::assignment_policy. Policies under test are default-constructible.

#include "protrain/activation/assignment.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// The first law of save levels that `policy` breaks, if it places any.
template <activation::assignment_policy P>
std::string broken_level_law(P const& policy,
                             random_source& r,
                             std::vector<activation::pin> const& pins,
                             activation::counts const& c) {
  std::vector<std::uint8_t> depths;
  for (std::size_t b = 0; b < pins.size(); ++b) {
    depths.push_back(static_cast<std::uint8_t>(r.between(0, trace::most_levels)));
  }
  activation::assignment const out = activation::assign(policy, pins, depths, c);
  if (out.strategies != policy.assign(pins, c) ||
      out != activation::assign(P(policy), std::vector(pins), std::vector(depths), c)) {
    return "equal inputs, equal answers";
  }
  if (out.levels.empty()) {
    return "";
  }
  if (!activation::level_policy<P> || out.levels.size() != pins.size()) {
    return "one level per block";
  }
  std::array<std::uint32_t, trace::most_levels> held{};
  for (std::size_t b = 0; b < pins.size(); ++b) {
    bool const may =
        pins[b] == activation::pin::free && out.strategies[b] == activation::strategy::keep;
    if (out.levels[b] > (may ? depths[b] : 0)) {
      return "0 for a block that is pinned or not kept, and at most its depth";
    }
    if (out.levels[b] > 0) {
      ++held[out.levels[b] - 1U];
    }
  }
  for (std::size_t k = 0; k < held.size(); ++k) {
    if (held[k] > c.levels[k]) {
      return "at most counts.levels[k - 1] blocks are at level k";
    }
  }
  return "";
}

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
    activation::counts const c{
        .swap = r.between32(0, 20),
        .checkpoint = r.between32(0, 20),
        .interval = r.between32(1, 5),
        .levels = {r.between32(0, 8), r.between32(0, 8), r.between32(0, 8), r.between32(0, 8)}};
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
    if (std::string const broken = broken_level_law(policy, r, pins, c); !broken.empty()) {
      return broken;
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an assignment policy", P, assignment_laws) {
  CHECK(broken_assignment_law(P{}) == "");
}

}  // namespace protrain::test
