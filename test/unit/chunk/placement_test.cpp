// SPDX-License-Identifier: Apache-2.0
// Placement: the laws over shipped and foreign policies.

#include "protrain/chunk/placement.hpp"

#include "test/law/placement.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace placement_test {

namespace {

using namespace protrain;

/// The least that is a policy: the last chunks.
struct archetype {
  using policy_tag = chunk::placement_tag;
  std::vector<std::uint8_t> persistent(chunk::layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    std::fill_n(out.rbegin(), std::min<std::size_t>(n, out.size()), std::uint8_t{1});
    return out;
  }
  bool operator==(archetype const&) const = default;
};

/// A policy with a value: starts somewhere and wraps around.
struct from_chunk {
  using policy_tag = chunk::placement_tag;
  std::size_t first = 3;
  std::vector<std::uint8_t> persistent(chunk::layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t i = 0; i < std::min<std::size_t>(n, out.size()); ++i) {
      out[(first + i) % out.size()] = 1;
    }
    return out;
  }
  bool operator==(from_chunk const&) const = default;
};

/// The least that weighs: it may look at benefits, and doesn't.
struct weighing_archetype {
  using policy_tag = chunk::placement_tag;
  std::vector<std::uint8_t> persistent(chunk::layout const& l,
                                       std::span<chunk::benefit const>,
                                       std::uint32_t n) const {
    return archetype{}.persistent(l, n);
  }
  bool operator==(weighing_archetype const&) const = default;
};
static_assert(chunk::weighs_benefits<weighing_archetype> && !chunk::weighs_benefits<archetype>);

/// With a value: what saves less than that counts as nothing, and of equals the last come first.
struct worth_it {
  using policy_tag = chunk::placement_tag;
  picoseconds least{3};
  std::vector<std::uint8_t> persistent(chunk::layout const& l,
                                       std::span<chunk::benefit const> of,
                                       std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    std::size_t left = std::min<std::size_t>(n, out.size());
    for (bool const worth : {true, false}) {
      for (std::size_t c = out.size(); c-- > 0;) {
        if (left > 0 && (of[c].saved >= least) == worth) {
          out[c] = 1;
          --left;
        }
      }
    }
    return out;
  }
  bool operator==(worth_it const&) const = default;
};
static_assert(chunk::weighs_benefits<worth_it>);

TEST_CASE_TEMPLATE_INVOKE(test::placement_laws,
                          chunk::persist_first,
                          chunk::persist_last,
                          chunk::persist_by_benefit,
                          archetype,
                          from_chunk,
                          weighing_archetype,
                          worth_it);

enum class breach : std::uint8_t { one_flag_more, one_chunk_more, changes_sides, changes_its_mind };

/// Breaks one law.
template <breach How>
struct lawless {
  using policy_tag = chunk::placement_tag;
  std::vector<std::uint8_t> persistent(chunk::layout const& l, std::uint32_t n) const {
    static unsigned calls = 0;
    std::uint32_t const more = How == breach::one_chunk_more ? 1 : 0;
    bool const backwards = (How == breach::changes_sides && n % 2 != 0) ||
                           (How == breach::changes_its_mind && ++calls % 2 != 0);
    auto out =
        backwards ? archetype{}.persistent(l, n) : chunk::persist_first{}.persistent(l, n + more);
    out.resize(out.size() + (How == breach::one_flag_more ? 1 : 0), 0);
    return out;
  }
  bool operator==(lawless const&) const = default;
};

TEST_CASE("policies that break a law of placement are found out") {
  using test::broken_placement_law;
  CHECK(broken_placement_law(lawless<breach::one_flag_more>{}) == "one flag per chunk");
  CHECK(broken_placement_law(lawless<breach::one_chunk_more>{}) == "min(n, chunks) of them set");
  CHECK(broken_placement_law(lawless<breach::changes_sides>{}) ==
        "the choice for n + 1 contains the choice for n");
  CHECK(broken_placement_law(lawless<breach::changes_its_mind>{}) == "equal inputs, equal answers");
}

TEST_CASE("persist_first keeps the chunks that run first") {
  chunk::layout l;
  l.chunks.resize(4);
  CHECK(chunk::persist_first{}.persistent(l, 2) == std::vector<std::uint8_t>{1, 1, 0, 0});
}

TEST_CASE("persist_last keeps the chunks that run last") {
  chunk::layout l;
  l.chunks.resize(4);
  CHECK(chunk::persist_last{}.persistent(l, 1) == std::vector<std::uint8_t>{0, 0, 0, 1});
  CHECK(chunk::persist_last{}.persistent(l, 3) == std::vector<std::uint8_t>{0, 1, 1, 1});
}

TEST_CASE("persist_by_benefit keeps what saves most per byte, the first of equals") {
  using flags = std::vector<std::uint8_t>;
  chunk::layout l;
  l.chunks.resize(5);
  std::array<chunk::benefit, 5> of{};
  of[0] = {.bytes = 400, .saved = {800}};
  of[1] = {.bytes = 100, .saved = {300}};
  of[2] = {.bytes = 200, .saved = {400}};
  of[3] = {.bytes = 0, .saved = {0}};
  of[4] = {.bytes = 1ULL << 60U, .saved = {(1ULL << 61U) + 1}};  // beyond 64-bit products
  chunk::persist_by_benefit const policy{};
  CHECK(policy.persistent(l, of, 1) == flags{0, 0, 0, 1, 0});
  CHECK(policy.persistent(l, of, 2) == flags{0, 1, 0, 1, 0});
  CHECK(policy.persistent(l, of, 3) == flags{0, 1, 0, 1, 1});
  CHECK(policy.persistent(l, of, 4) == flags{1, 1, 0, 1, 1});
  CHECK(policy.persistent(l, of, 9) == flags{1, 1, 1, 1, 1});
}

}  // namespace

}  // namespace placement_test
