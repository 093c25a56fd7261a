// SPDX-License-Identifier: Apache-2.0
// result: value or failure, also in constant evaluation, for types that own memory.

#include "protrain/core/result.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

namespace result_test {

namespace {

using namespace protrain;

constexpr result<std::vector<int>> three(bool fail) {
  if (fail) {
    return error{errc::out_of_range, "no", 7};
  }
  return std::vector<int>{1, 2, 3};
}

static_assert(three(false)->size() == 3);
static_assert(three(true).failure() == error{errc::out_of_range, "no", 7});
static_assert([] {
  auto a = three(false);
  auto b = three(true);
  auto const c = a;
  a = b;
  b = c;
  return !a && b && c.value() == *b && a.failure().number == 7;
}());

TEST_CASE("asking for what isn't there is a contract error") {
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)three(true).value(), test::contract_broken);
  CHECK_THROWS_AS((void)three(false).failure(), test::contract_broken);
}

TEST_CASE("values are destroyed once, and move out") {
  auto const counted = std::make_shared<int>(1);
  {
    result<std::shared_ptr<int>> a = counted;
    result<std::shared_ptr<int>> b = a;
    CHECK(counted.use_count() == 3);
    a = error{};
    CHECK(counted.use_count() == 2);
    std::shared_ptr<int> const out = std::move(b).value();
    CHECK(counted.use_count() == 2);
    CHECK(out == counted);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("a failure type of one's own") {
  struct why {
    int code;
  };
  result<int, why> const r = why{4};
  CHECK_FALSE(r.has_value());
  CHECK(r.failure().code == 4);
}

}  // namespace

}  // namespace result_test
