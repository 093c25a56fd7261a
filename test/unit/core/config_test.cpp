// SPDX-License-Identifier: Apache-2.0
// Contracts: the handler sees condition, message and place, and null restores the default.

#include "protrain/core/config.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <string>

namespace config_test {

namespace {

using namespace protrain;

TEST_CASE("a violation tells the handler everything") {
  static violation seen{};
  violation_handler const old = set_violation_handler([](violation const& v) {
    seen = v;
    throw 1;
  });
  int const two = 2;
  CHECK_THROWS_AS([&] { PROTRAIN_EXPECT(two == 3, "two is three"); }(), int);
  bool const mine = set_violation_handler(old) != nullptr;
  CHECK(mine);
  CHECK(std::string(seen.condition) == "two == 3");
  CHECK(std::string(seen.message) == "two is three");
  CHECK(std::string(seen.file).find("config_test") != std::string::npos);
  CHECK(seen.line > 0);
}

TEST_CASE("a contract that holds costs nothing and handlers nest") {
  test::throwing_contracts const outer;
  {
    test::throwing_contracts const inner;
    CHECK_NOTHROW([] { PROTRAIN_EXPECT(true, ""); }());
  }
  CHECK_THROWS_AS([] { PROTRAIN_EXPECT(false, ""); }(), test::contract_broken);
}

}  // namespace

}  // namespace config_test
