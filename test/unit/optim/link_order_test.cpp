// SPDX-License-Identifier: Apache-2.0
// A program of which one half is built for this processor and the other for any: whichever copy of
// an inline function the linker keeps, both have the bits of the contract. Linked in both orders.

#include "test/unit/optim/contract_expected.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace protrain_test {

std::uint64_t digest_of_native_part();
std::uint64_t digest_of_plain_part();

}  // namespace protrain_test

TEST_CASE("both halves give the bits of the contract") {
  CHECK(protrain_test::digest_of_native_part() == protrain_test::expected_digest);
  CHECK(protrain_test::digest_of_plain_part() == protrain_test::expected_digest);
}
