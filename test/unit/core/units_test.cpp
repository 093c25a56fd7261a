// SPDX-License-Identifier: Apache-2.0
// Bytes, times and rates: literals, checked arithmetic, rounding.

#include "protrain/core/units.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <limits>

namespace units_test {

namespace {

using namespace protrain;

constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();

static_assert((1_KiB).count() == 1024 && (3_MiB).count() == 3 * 1048576);
static_assert((80_GB).count() == 80'000'000'000 && (24_GiB).count() == 25'769'803'776);
static_assert((5_B).count() == 5 && (5_kB).count() == 5000 && (5_MB).count() == 5'000'000);
static_assert((1_ns).count() == 1000 && (1_us).count() == 1'000'000);
static_assert((2_ms).count() == 2'000'000'000);
static_assert(1_KiB + 1_B == bytes{1025} && 1_KiB - 1_B == bytes{1023} && 2_B * 3 == 6_B);
static_assert(1_us < 1_ms && bytes{} < 1_B);

TEST_CASE("sums, differences and products that don't fit are contract errors") {
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)(bytes{most} + 1_B), test::contract_broken);
  CHECK_THROWS_AS((void)(1_B - 2_B), test::contract_broken);
  CHECK_THROWS_AS((void)(bytes{most / 2} * 3), test::contract_broken);
  CHECK_THROWS_AS((void)(picoseconds{most} + picoseconds{1}), test::contract_broken);
  CHECK_THROWS_AS((void)(picoseconds{} - 1_ns), test::contract_broken);
  CHECK(bytes{most} - bytes{most} == bytes{});
}

TEST_CASE("compound arithmetic") {
  bytes b = 10_B;
  b += 5_B;
  b -= 1_B;
  CHECK(b.count() == 14);
  picoseconds t = 1_ns;
  t += 1_ns;
  CHECK(t == 2_ns);
  CHECK((1_ms).seconds() == doctest::Approx(1e-3));
}

TEST_CASE("a time is rounded up to a picosecond and never overflows silently") {
  CHECK(time_of(0, bandwidth{7}).count() == 0);
  CHECK(time_of(1, bandwidth{1'000'000'000'000}).count() == 1);
  CHECK(time_of(1, bandwidth{3'000'000'000'000}).count() == 1);
  CHECK(time_of(4, bandwidth{3'000'000'000'000}).count() == 2);
  CHECK(time_of(1_GB .count(), bandwidth{1'000'000'000}).count() == 1'000'000'000'000);
  CHECK(time_of(most, bandwidth{1'000'000'000'000}).count() == most);
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)time_of(1, bandwidth{0}), test::contract_broken);
  CHECK_THROWS_AS((void)time_of(most, bandwidth{1}), test::contract_broken);
}

}  // namespace

}  // namespace units_test
