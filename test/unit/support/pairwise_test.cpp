// SPDX-License-Identifier: Apache-2.0
// Covering arrays cover: by a count that shares nothing with the generator.

#include "test/support/pairwise.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

namespace pairwise_test {

namespace {

using namespace protrain;

test::covering_array space() {
  return {{{"a", {"0", "1", "2"}},
           {"b", {"0", "1"}},
           {"c", {"0", "1", "2", "3"}},
           {"d", {"0"}},
           {"e", {"0", "1", "2"}},
           {"f", {"0", "1"}}},
          {{{1, 1}, {5, 0}}, {{0, 2}, {2, 3}}}};
}

using seen_pair = std::tuple<std::size_t, std::size_t, std::uint32_t, std::uint32_t>;

std::set<seen_pair> pairs_in(std::vector<test::choice_row> const& rows) {
  std::set<seen_pair> out;
  for (test::choice_row const& row : rows) {
    for (std::size_t a = 0; a < row.size(); ++a) {
      for (std::size_t b = a + 1; b < row.size(); ++b) {
        out.insert({a, b, row[a], row[b]});
      }
    }
  }
  return out;
}

TEST_CASE("every allowed pair occurs, no forbidden one does, in few rows") {
  // Pairs of values: 6 + 12 + 3 + 9 + 6 + 8 + 2 + 6 + 4 + 4 + 12 + 8 + 3 + 2 + 6, two forbidden.
  std::size_t const all = 91 - 2;
  CHECK(space().pairs().size() == all);
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    auto const rows = space().rows(30, seed);
    CHECK(rows.size() == 30);
    auto const seen = pairs_in(rows);
    CHECK(seen.size() == all);
    CHECK_FALSE(seen.contains({1, 5, 1, 0}));
    CHECK_FALSE(seen.contains({0, 2, 2, 3}));
    CHECK(space().missing_pairs(rows).empty());
    CHECK(space().missing_pairs(space().rows(16, seed)).size() < 3);
  }
}

TEST_CASE("what is missing is named") {
  auto rows = space().rows(30, 1);
  std::erase_if(rows, [](test::choice_row const& r) { return r[2] == 1 && r[4] == 2; });
  auto const missing = space().missing_pairs(rows);
  REQUIRE_FALSE(missing.empty());
  CHECK(std::find(missing.begin(), missing.end(), "c=1 with e=2") != missing.end());
  std::erase_if(rows, [](test::choice_row const& r) { return r[2] == 3; });
  CHECK(space().missing_values(rows) == std::vector<std::string>{"c=3"});
}

TEST_CASE("equal seeds give equal rows, others give others") {
  CHECK(space().rows(40, 3) == space().rows(40, 3));
  CHECK(space().rows(40, 3) != space().rows(40, 4));
  CHECK(space().text(test::choice_row{2, 0, 1, 0, 2, 1}) == "a=2, b=0, c=1, d=0, e=2, f=1");
}

}  // namespace

}  // namespace pairwise_test
