// SPDX-License-Identifier: Apache-2.0
// Assignment: the laws, the paper's figure, pins.

#include "protrain/activation/assignment.hpp"

#include "test/law/assignment.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <span>
#include <vector>

namespace assignment_test {

namespace {

using namespace protrain;
using activation::pin;
using activation::strategy;

/// The least that is a policy.
struct archetype {
  using policy_tag = activation::assignment_tag;
  std::vector<strategy> assign(std::span<pin const> pins, activation::counts const&) const {
    std::vector<strategy> out;
    for (pin const p : pins) {
      out.push_back(p == pin::free ? strategy::keep : activation::pinned(p));
    }
    return out;
  }
  bool operator==(archetype const&) const = default;
};

/// The least that places levels: every block that can at level 1, while there are some.
struct level_archetype : archetype {
  std::vector<std::uint8_t> save_levels(std::span<pin const> pins,
                                        std::span<std::uint8_t const> depths,
                                        activation::counts const& c) const {
    std::vector<std::uint8_t> out(pins.size(), 0);
    std::uint32_t used = 0;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      if (pins[b] == pin::free && depths[b] > 0 && used < c.levels[0]) {
        out[b] = 1;
        ++used;
      }
    }
    return out;
  }
  bool operator==(level_archetype const&) const = default;
};
static_assert(activation::level_policy<level_archetype>);
static_assert(!activation::level_policy<archetype>);

/// A policy with a value: checkpoints every n-th free block while it may.
struct every {
  using policy_tag = activation::assignment_tag;
  std::uint32_t n = 2;
  std::vector<strategy> assign(std::span<pin const> pins, activation::counts const& c) const {
    std::vector<strategy> out = archetype{}.assign(pins, c);
    std::uint32_t used = 0;
    for (std::size_t b = 0; b < pins.size(); b += n) {
      if (pins[b] == pin::free && used < c.checkpoint) {
        out[b] = strategy::checkpoint;
        ++used;
      }
    }
    return out;
  }
  bool operator==(every const&) const = default;
};

/// Levels by a value: of the blocks that are kept, those from `first` on, at the shallowest level
/// that has a count.
struct levels_from {
  using policy_tag = activation::assignment_tag;
  std::size_t first = 2;
  std::vector<strategy> assign(std::span<pin const> pins, activation::counts const& c) const {
    return every{}.assign(pins, c);
  }
  std::vector<std::uint8_t> save_levels(std::span<pin const> pins,
                                        std::span<std::uint8_t const> depths,
                                        activation::counts const& c) const {
    std::vector<strategy> const how = assign(pins, c);
    std::vector<std::uint8_t> out(pins.size(), 0);
    auto left = c.levels;
    for (std::size_t b = first; b < pins.size(); ++b) {
      bool const kept = pins[b] == pin::free && how[b] == strategy::keep;
      for (std::uint8_t k = 1; kept && out[b] == 0 && k <= depths[b]; ++k) {
        out[b] = left[k - 1U] > 0 ? k : std::uint8_t{0};
        left[k - 1U] -= out[b] > 0 ? 1U : 0U;
      }
    }
    return out;
  }
  bool operator==(levels_from const&) const = default;
};
static_assert(activation::level_policy<levels_from>);

TEST_CASE_TEMPLATE_INVOKE(test::assignment_laws,
                          activation::interleaved,
                          activation::keep_all,
                          activation::checkpoint_all,
                          activation::swap_first,
                          activation::levels,
                          archetype,
                          level_archetype,
                          every,
                          levels_from);

enum class breach : std::uint8_t { short_of_one, overrules, swaps_all, recomputes_all, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = activation::assignment_tag;
  std::vector<strategy> assign(std::span<pin const> pins, activation::counts const& c) const {
    static unsigned calls = 0;
    std::vector<strategy> out = archetype{}.assign(pins, c);
    if (How == breach::fickle && ++calls % 2 != 0) {
      return every{}.assign(pins, c);
    }
    for (std::size_t b = 0; b < pins.size(); ++b) {
      bool const free = pins[b] == pin::free;
      if (How == breach::overrules || (How == breach::swaps_all && free)) {
        out[b] = strategy::swap;
      } else if (How == breach::recomputes_all && free) {
        out[b] = strategy::checkpoint;
      }
    }
    if (How == breach::short_of_one && !out.empty()) {
      out.pop_back();
    }
    return out;
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of assignment are found out") {
  using test::broken_assignment_law;
  CHECK(broken_assignment_law(lawless<breach::short_of_one>{}) == "one entry per block");
  CHECK(broken_assignment_law(lawless<breach::overrules>{}) ==
        "entries of pinned blocks are the pin");
  CHECK(broken_assignment_law(lawless<breach::swaps_all>{}) ==
        "at most counts.swap free blocks are swapped");
  CHECK(broken_assignment_law(lawless<breach::recomputes_all>{}) ==
        "at most counts.checkpoint free blocks are checkpointed");
  CHECK(broken_assignment_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

constexpr strategy K = strategy::keep;
constexpr strategy C = strategy::checkpoint;
constexpr strategy S = strategy::swap;

TEST_CASE("the paper's figure: 8 blocks, swap 1 and 4, checkpoint 2 3 5 6, keep 7 8") {
  std::vector<pin> const pins(8, pin::free);
  CHECK(activation::interleaved{}.assign(pins, {.swap = 2, .checkpoint = 4, .interval = 3}) ==
        std::vector{S, C, C, S, C, C, K, K});
}

TEST_CASE("an interval too wide for all swaps swaps fewer") {
  std::vector<pin> const pins(5, pin::free);
  CHECK(activation::interleaved{}.assign(pins, {.swap = 4, .checkpoint = 1, .interval = 3}) ==
        std::vector{S, C, K, S, K});
  CHECK(activation::interleaved{}.assign(pins, {.swap = 2, .checkpoint = 0, .interval = 1}) ==
        std::vector{S, S, K, K, K});
}

TEST_CASE("swap first: no interval, the earliest blocks are swapped") {
  std::vector<pin> const pins(6, pin::free);
  CHECK(activation::swap_first{}.assign(pins, {.swap = 2, .checkpoint = 3, .interval = 4}) ==
        std::vector{S, S, C, C, C, K});
  CHECK(activation::swap_first{}.assign(pins, {.swap = 9, .checkpoint = 9, .interval = 4}) ==
        std::vector{S, S, S, S, S, S});
  std::vector<pin> const some{pin::keep, pin::free, pin::checkpoint, pin::free, pin::free};
  CHECK(activation::swap_first{}.assign(some, {.swap = 1, .checkpoint = 1, .interval = 2}) ==
        std::vector{K, S, C, C, K});
}

TEST_CASE("levels: early blocks hold the deeper ones, and each only what it has") {
  std::vector<pin> const pins(7, pin::free);
  std::vector<std::uint8_t> const depths{2, 2, 2, 2, 2, 2, 2};
  auto const at = [](std::vector<pin> const& p,
                     std::vector<std::uint8_t> const& d,
                     activation::counts const& c) {
    return activation::levels{}.save_levels(p, d, c);
  };
  using levels = std::vector<std::uint8_t>;
  CHECK(at(pins, depths, {.levels = {3, 2}}) == levels{2, 2, 1, 1, 1, 0, 0});
  // Swapped and checkpointed as by `interleaved`; what is left is divided.
  activation::counts const c{.swap = 2, .checkpoint = 2, .interval = 2, .levels = {2, 1}};
  CHECK(activation::levels{}.assign(pins, c) == std::vector{S, C, S, C, K, K, K});
  CHECK(at(pins, depths, c) == levels{0, 0, 0, 0, 2, 1, 1});
  // A count that no block can hold is not spent on another level.
  CHECK(at(pins, {0, 1, 2, 0, 1, 2, 2}, {.levels = {1, 9, 9}}) == levels{0, 1, 2, 0, 0, 2, 2});
  CHECK(at({pin::keep, pin::free, pin::swap}, {2, 2, 2}, {.levels = {9, 0}}) == levels{0, 1, 0});
}

TEST_CASE("only a policy of levels fills them, and nothing at level 0 is no entry") {
  std::vector<pin> const pins(3, pin::free);
  std::vector<std::uint8_t> const depths{1, 1, 1};
  activation::counts const c{.checkpoint = 1, .levels = {1}};
  CHECK(activation::assign(activation::interleaved{}, pins, depths, c) ==
        activation::assignment{.strategies = {C, K, K}, .levels = {}});
  CHECK(activation::assign(activation::levels{}, pins, depths, c) ==
        activation::assignment{.strategies = {C, K, K}, .levels = {0, 1, 0}});
  CHECK(activation::assign(activation::levels{}, pins, depths, {}).levels.empty());
  trace::trace t;
  t.shapes = {{}, {.levels = {{}, {}}}};
  t.blocks = {{1}, {0}, {1}};
  CHECK(activation::depths_of(t) == std::vector<std::uint8_t>{2, 0, 2});
}

TEST_CASE("pinned blocks keep their pin and don't count") {
  std::vector<pin> const pins{
      pin::checkpoint, pin::free, pin::keep, pin::free, pin::swap, pin::free};
  CHECK(activation::free_blocks(pins) == 3);
  CHECK(activation::interleaved{}.assign(pins, {.swap = 2, .checkpoint = 1, .interval = 2}) ==
        std::vector{C, S, K, C, S, S});
  CHECK(activation::checkpoint_all{}.assign(pins, {.checkpoint = 3}) ==
        std::vector{C, C, K, C, S, C});
  CHECK(activation::keep_all{}.assign(pins, {.swap = 3, .checkpoint = 3}) ==
        std::vector{C, K, K, K, S, K});
}

TEST_CASE("pins come from the shapes, one per block") {
  trace::trace t;
  t.shapes = {{.pinned = pin::swap}, {.pinned = pin::free}};
  t.blocks = {{0}, {1}, {1}};
  CHECK(activation::pins_of(t) == std::vector{pin::swap, pin::free, pin::free});
}

TEST_CASE("strategies have names, and a block type is free unless it says otherwise") {
  CHECK(name_of(K) == "keep");
  CHECK(name_of(C) == "checkpoint");
  CHECK(name_of(S) == "swap");
  CHECK(activation::strategy_of<int>::value == pin::free);
  CHECK(activation::pinned(pin::keep) == K);
  CHECK(activation::pinned(pin::checkpoint) == C);
  CHECK(activation::pinned(pin::swap) == S);
}

}  // namespace

}  // namespace assignment_test
