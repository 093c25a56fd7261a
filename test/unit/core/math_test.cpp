// SPDX-License-Identifier: Apache-2.0
// Checked arithmetic and rounding at the edges of 64 bits.

#include "protrain/core/math.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace math_test {

namespace {

using namespace protrain;

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

static_assert(checked_mul(250'880, 14'336) == 3'596'615'680);  // above 32 bits
static_assert(round_up(0, 256) == 0 && round_up(1, 256) == 256 && round_up(256, 256) == 256);
static_assert(ceil_div(0, 3) == 0 && ceil_div(7, 3) == 3 && ceil_div(most, 1) == most);
static_assert(ceil_div(most, 2) == most / 2 + 1);
static_assert(mul_div(most, most, most) == most && mul_div(7, 5, 3) == 11);
static_assert(granules(1) == address_granule && granules(257) == 512 && granules(0) == 0);

TEST_CASE("what doesn't fit is a contract error, what just fits is not") {
  test::throwing_contracts const guard;
  CHECK(checked_add(most - 1, 1) == most);
  CHECK_THROWS_AS((void)checked_add(most, 1), test::contract_broken);
  CHECK(checked_sub(5, 5) == 0);
  CHECK_THROWS_AS((void)checked_sub(4, 5), test::contract_broken);
  CHECK(checked_mul(most, 1) == most);
  CHECK(checked_mul(0, most) == 0);
  CHECK(checked_mul(1ULL << 32U, (1ULL << 32U) - 1) == most - ((1ULL << 32U) - 1));
  CHECK_THROWS_AS((void)checked_mul(1ULL << 32U, 1ULL << 32U), test::contract_broken);
  CHECK(round_up(most - 255, 256) == most - 255);
  CHECK_THROWS_AS((void)round_up(most - 254, 256), test::contract_broken);
  CHECK_THROWS_AS((void)round_up(1, 0), test::contract_broken);
  CHECK_THROWS_AS((void)ceil_div(1, 0), test::contract_broken);
  CHECK_THROWS_AS((void)mul_div(1, 1, 0), test::contract_broken);
  CHECK_THROWS_AS((void)mul_div(most, 2, 1), test::contract_broken);
}

}  // namespace

}  // namespace math_test
