// SPDX-License-Identifier: Apache-2.0
// Element counts of parameters.

#include "protrain/model/parameter.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

namespace parameter_test {

namespace {

using namespace protrain;

TEST_CASE("scalars have one element, empty tensors none, large ones more than 32 bits hold") {
  CHECK(elements(model::parameter{}) == 1);
  CHECK(elements(model::parameter{.shape = {7, 4}}) == 28);
  CHECK(elements(model::parameter{.shape = {0}}) == 0);
  CHECK(elements(model::parameter{.shape = {1ULL << 40U, 0, 5}}) == 0);
  CHECK(elements(model::parameter{.shape = {250'880, 14'336}}) == 3'596'615'680);
}

TEST_CASE("a count that overflows is a contract error") {
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)model::elements_of({1ULL << 33U, 1ULL << 33U}), test::contract_broken);
}

}  // namespace

}  // namespace parameter_test
