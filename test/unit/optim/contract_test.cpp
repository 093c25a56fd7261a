// SPDX-License-Identifier: Apache-2.0
// The bits of the whole folder. This file is built once per compiler setting, see BUILD.bazel.

#include "test/unit/optim/contract_digest.hpp"

#include <doctest/doctest.h>

TEST_CASE("this compiler setting gives the bits of every other") {
  MESSAGE("seed " << protrain_test::seed);
  CHECK(protrain_test::contract_digest() == protrain_test::expected_digest);
}
