// SPDX-License-Identifier: Apache-2.0
// Eviction: the laws over shipped and foreign policies, and what execution order means.

#include "protrain/chunk/eviction.hpp"

#include "test/law/eviction.hpp"
#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <array>

namespace eviction_test {

namespace {

using namespace protrain;

/// The least that is a policy.
struct archetype {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(std::span<chunk::resident const>) const noexcept { return 0; }
  bool operator==(archetype const&) const = default;
};

/// A policy with a value: spares chunks below a number.
struct spares_below {
  using policy_tag = chunk::eviction_tag;
  std::uint32_t limit = 40;
  std::size_t victim(std::span<chunk::resident const> in) const noexcept {
    for (std::size_t i = 0; i < in.size(); ++i) {
      if (in[i].id.value >= limit) {
        return i;
      }
    }
    return in.size() - 1;
  }
  bool operator==(spares_below const&) const = default;
};

/// Breaks the law.
struct outside {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(std::span<chunk::resident const> in) const noexcept { return in.size(); }
  bool operator==(outside const&) const = default;
};

/// Breaks the law.
struct fickle {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(std::span<chunk::resident const> in) const noexcept {
    static std::size_t calls = 0;
    return ++calls % in.size();
  }
  bool operator==(fickle const&) const = default;
};

TEST_CASE_TEMPLATE_INVOKE(test::eviction_laws,
                          chunk::execution_order,
                          chunk::furthest_next_use,
                          chunk::least_recently_used,
                          archetype,
                          spares_below);

TEST_CASE("policies that break a law of eviction are found out") {
  CHECK(test::broken_eviction_law(outside{}) == "the index is inside");
  CHECK(test::broken_eviction_law(fickle{}) == "equal inputs, equal answers");
}

TEST_CASE("execution order evicts what ran longest ago, the first of equals") {
  std::array const in{chunk::resident{{4}, 9, 30},
                      chunk::resident{{5}, 3, chunk::never},
                      chunk::resident{{6}, 3, 10},
                      chunk::resident{{7}, 8, 9}};
  CHECK(chunk::execution_order{}.victim(in) == 1);
}

TEST_CASE("furthest next use evicts what is never needed again, then what is needed last") {
  std::array const in{chunk::resident{{4}, 9, 30},
                      chunk::resident{{5}, 8, chunk::never},
                      chunk::resident{{6}, 3, 40},
                      chunk::resident{{7}, 2, chunk::never}};
  CHECK(chunk::furthest_next_use{}.victim(in) == 3);  // of two that are not needed, the older
  CHECK(chunk::furthest_next_use{}.victim(std::span(in).first(3)) == 1);
  std::array const needed{in[0], in[2]};
  CHECK(chunk::furthest_next_use{}.victim(needed) == 1);
}

TEST_CASE("what came in and hasn't run: last in execution order, but touched when it came") {
  std::array const in{chunk::resident{{4}, chunk::never, 12, 5}, chunk::resident{{5}, 9, 30, 1}};
  CHECK(chunk::execution_order{}.victim(in) == 1);
  CHECK(chunk::least_recently_used{}.victim(in) == 0);
}

TEST_CASE("a policy that leaves the set is the caller's bug") {
  test::throwing_contracts const guard;
  std::array const in{chunk::resident{{0}, 1, 2}};
  CHECK_THROWS_AS((void)chunk::evict_one(outside{}, in), test::contract_broken);
}

}  // namespace

}  // namespace eviction_test
