// SPDX-License-Identifier: Apache-2.0
// Chunk sizes: the laws, the grid and its order.

#include "protrain/chunk/sizing.hpp"

#include "test/law/sizing.hpp"

#include <doctest/doctest.h>

#include <algorithm>

namespace sizing_test {

namespace {

using namespace protrain;

/// The least that is a policy: everything in one chunk.
struct archetype {
  using policy_tag = chunk::sizing_tag;
  std::vector<std::uint64_t> capacities(trace::trace const& t) const {
    std::uint64_t sum = 1;
    for (model::parameter const& p : t.parameters) {
      sum += elements(p) + element_granule;
    }
    return {round_up(sum, element_granule * t.job.world)};
  }
  bool operator==(archetype const&) const = default;
};

/// A policy with a value.
struct multiples {
  using policy_tag = chunk::sizing_tag;
  std::uint64_t most = 3;
  std::vector<std::uint64_t> capacities(trace::trace const& t) const {
    std::vector<std::uint64_t> out;
    for (std::uint64_t k = 1; k <= most; ++k) {
      out.push_back(k * element_granule * t.job.world);
    }
    return out;
  }
  bool operator==(multiples const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::sizing_laws, chunk::uniform_grid, archetype, multiples);

enum class breach : std::uint8_t { none_at_all, zero, no_multiple, not_for_ranks, twice, fickle };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = chunk::sizing_tag;
  std::vector<std::uint64_t> capacities(trace::trace const& t) const {
    static std::uint64_t calls = 0;
    std::uint64_t const step = element_granule * t.job.world;
    switch (How) {
      case breach::none_at_all:
        return {};
      case breach::zero:
        return {step, 0};
      case breach::no_multiple:
        return {step + 1};
      case breach::not_for_ranks:
        return {element_granule};
      case breach::twice:
        return {2 * step, step, 2 * step};
      case breach::fickle:
        return {step * ++calls};
    }
    return {};
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of sizing are found out") {
  using test::broken_sizing_law;
  CHECK(broken_sizing_law(lawless<breach::none_at_all>{}) == "at least one");
  for (std::string const& broken : {broken_sizing_law(lawless<breach::zero>{}),
                                    broken_sizing_law(lawless<breach::no_multiple>{}),
                                    broken_sizing_law(lawless<breach::not_for_ranks>{})}) {
    CHECK(broken == "each positive, a multiple of a granule per rank");
  }
  CHECK(broken_sizing_law(lawless<breach::twice>{}) == "none twice");
  CHECK(broken_sizing_law(lawless<breach::fickle>{}) == "equal inputs, equal answers");
}

/// An embedding of `embedding` elements, `n` blocks of `body`, and a tied head.
trace::trace language_model(std::uint64_t embedding, std::uint32_t n, std::uint64_t body) {
  trace::trace t;
  t.shapes = {{}, {}, {}};
  t.blocks.push_back({0});
  t.parameters.push_back({.shape = {embedding}, .uses = {{0}, {n + 1}}});
  for (std::uint32_t b = 1; b <= n; ++b) {
    t.blocks.push_back({1});
    t.parameters.push_back({.shape = {body}, .uses = {{b}}});
  }
  t.blocks.push_back({2});
  return t;
}

TEST_CASE("the grid runs from the largest block to four times it in sixteenths") {
  auto const t = language_model(1024, 4, 16 * 1024);
  auto sizes = chunk::uniform_grid{}.capacities(t);
  std::sort(sizes.begin(), sizes.end());
  REQUIRE(sizes.size() == 49);
  CHECK(sizes.front() == 16 * 1024);
  CHECK(sizes.back() == 64 * 1024);
  CHECK(sizes[1] - sizes[0] == 1024);
}

TEST_CASE("least padding comes first, the smaller of equals") {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    trace::trace const t = test::make_case(seed).facts;
    auto const sizes = chunk::uniform_grid{}.capacities(t);
    for (std::size_t i = 1; i < sizes.size(); ++i) {
      auto const a = chunk::waste(chunk::make_layout(t, sizes[i - 1]));
      auto const b = chunk::waste(chunk::make_layout(t, sizes[i]));
      CHECK((a < b || (a == b && sizes[i - 1] < sizes[i])));
    }
  }
}

TEST_CASE("an embedding of nine blocks doesn't inflate the grid") {
  auto const t = language_model(9 * 16 * 1024, 24, 16 * 1024);
  auto const sizes = chunk::uniform_grid{}.capacities(t);
  CHECK(*std::min_element(sizes.begin(), sizes.end()) == 16 * 1024);
  chunk::layout const l = chunk::make_layout(t, sizes.front());
  CHECK(l.chunks[0].oversize);
}

TEST_CASE("an embedding that owns more than all layers together is still no body") {
  auto const t = language_model(9 * 16 * 1024, 4, 16 * 1024);
  auto const sizes = chunk::uniform_grid{}.capacities(t);
  CHECK(*std::min_element(sizes.begin(), sizes.end()) == 16 * 1024);
  CHECK(chunk::make_layout(t, sizes.front()).chunks[0].oversize);
}

TEST_CASE("where no shape repeats, the one that owns most is the body") {
  auto t = language_model(16 * 1024, 1, 64 * 1024);
  auto const sizes = chunk::uniform_grid{}.capacities(t);
  CHECK(*std::min_element(sizes.begin(), sizes.end()) == 64 * 1024);
}

}  // namespace

}  // namespace sizing_test
