// SPDX-License-Identifier: Apache-2.0
// The bits of the whole folder. This file is built once per compiler setting, see BUILD.bazel.

#include "protrain/optim/vectors.hpp"
#include "test/unit/optim/contract_digest.hpp"

#include <doctest/doctest.h>

#include <string>

TEST_CASE("compiler settings change bits: this one gives those of every other") {
  MESSAGE("seed " << protrain_test::seed);
  CHECK(protrain_test::contract_digest() == protrain_test::expected_digest);
}

TEST_CASE("every vector path gives the same bits") {
  using protrain::optim::vectors;
  for (vectors const with : {vectors::none, vectors::avx2, vectors::avx512}) {
    std::string const name(name_of(with));
    CAPTURE(name);
    if (protrain::optim::supported(with)) {
      CHECK(protrain_test::contract_digest(protrain_test::forced{with}) ==
            protrain_test::expected_digest);
    } else {
      MESSAGE("skipped: this processor has no " << name);
    }
  }
}
