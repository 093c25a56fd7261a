// SPDX-License-Identifier: Apache-2.0
// Rounding to bf16 and the split of the fp32 master: exact over a sample of all 2^32 patterns.

#include "protrain/core/bfloat16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace bfloat16_test {

namespace {

using protrain::bfloat16;
using protrain::merge_master;
using protrain::split_master;
using protrain::split_value;
using protrain::to_bfloat16;
using protrain::to_float;

constexpr float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
constexpr std::uint16_t rounded(std::uint32_t bits) { return to_bfloat16(from_bits(bits)).bits; }
constexpr std::uint32_t round_trip(std::uint32_t bits) {
  return bits_of(merge_master(split_master(from_bits(bits))));
}

static_assert(std::is_trivially_copyable_v<bfloat16> && std::is_trivially_copyable_v<split_value>);
static_assert(to_float(bfloat16{0x3F80}) == 1.0F);

// Ties go away from zero, both signs and both parities; just below a tie rounds towards zero.
static_assert(rounded(0x3F808000U) == 0x3F81 && rounded(0x3F818000U) == 0x3F82);
static_assert(rounded(0xBF808000U) == 0xBF81 && rounded(0xBF818000U) == 0xBF82);
static_assert(rounded(0x3F807FFFU) == 0x3F80 && rounded(0xBF807FFFU) == 0xBF80);
static_assert(rounded(0x00000000U) == 0x0000 && rounded(0x80000000U) == 0x8000);
static_assert(rounded(0x00008000U) == 0x0001 && rounded(0x00007FFFU) == 0x0000);
static_assert(rounded(0x7F7F7FFFU) == 0x7F7F && rounded(0x7F7F8000U) == 0x7F80);
static_assert(rounded(0x7F800000U) == 0x7F80 && rounded(0xFF800000U) == 0xFF80);
static_assert(rounded(0x7F800001U) == 0x7FC0 && rounded(0xFFC00000U) == 0x7FC0 &&
              rounded(0x7FFFFFFFU) == 0x7FC0 && rounded(0xFFFFFFFFU) == 0x7FC0);

static_assert(round_trip(0x3F808000U) == 0x3F808000U && round_trip(0xBF818000U) == 0xBF818000U);
static_assert(round_trip(0x00000001U) == 0x00000001U && round_trip(0x80000000U) == 0x80000000U);
static_assert(round_trip(0x7F7FFFFFU) == 0x7F7FFFFFU && round_trip(0xFF7FFFFFU) == 0xFF7FFFFFU);
static_assert(round_trip(0x7F800000U) == 0x7F800000U && round_trip(0xFF800000U) == 0xFF800000U);
static_assert(split_master(from_bits(0x7FFFFFFFU)) == split_value{{0x7FC0}, 0});
static_assert(split_master(from_bits(0xFFC00000U)) == split_value{{0x7FC0}, 0});
static_assert(split_master(from_bits(0x3F808000U)) == split_value{{0x3F81}, -0x8000});

void check_pattern(std::uint32_t bits) {
  float const x = from_bits(bits);
  split_value const halves = split_master(x);
  std::uint32_t const expected = std::isnan(x) ? 0x7FC00000U : bits;
  if (halves.hi != to_bfloat16(x) || bits_of(merge_master(halves)) != expected) {
    FAIL("pattern " << bits);  // one assertion per pattern would take most of the time
  }
}

}  // namespace

TEST_CASE("the split is exact over all patterns (prime stride), and its high half is the value") {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += 1009) {
    check_pattern(static_cast<std::uint32_t>(bits));
  }
}

TEST_CASE("the split is exact around every tie, zero, infinity and denormal boundary") {
  for (std::uint32_t high = 0; high < 0x10000U; ++high) {
    for (std::uint32_t const low : {0U, 1U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      check_pattern((high << 16U) | low);
    }
  }
}

TEST_CASE("rounding is the nearest bf16, ties away from zero, against real arithmetic") {
  for (std::uint64_t pattern = 0; pattern < 0x7F7F8000U; pattern += 4099) {
    auto const bits = static_cast<std::uint32_t>(pattern);
    double const x = static_cast<double>(from_bits(bits));
    auto const below = static_cast<std::uint16_t>(bits >> 16U);
    auto const above = static_cast<std::uint16_t>(below + 1);
    double const down = x - static_cast<double>(to_float({below}));
    double const up = (above == 0x7F80 ? 0x1p128 : static_cast<double>(to_float({above}))) - x;
    std::uint16_t const nearest = down < up ? below : above;
    if (rounded(bits) != nearest || rounded(bits | 0x80000000U) != (nearest | 0x8000)) {
      FAIL("pattern " << bits);
    }
  }
}

TEST_CASE("a foreign NaN splits into a number: every NaN stays one, in both halves") {
  // Rounded and cut without a look at NaNs, CUDA's becomes -0.
  CHECK(((0x7FFFFFFFU + 0x8000U) >> 16U) == 0x8000U);
  for (std::uint32_t payload = 1; payload < 0x800000U; payload += 977) {
    for (std::uint32_t const sign : {0U, 0x80000000U}) {
      float const x = from_bits(sign | 0x7F800000U | payload);
      REQUIRE(std::isnan(to_float(split_master(x).hi)));
      REQUIRE(round_trip(bits_of(x)) == 0x7FC00000U);
    }
  }
  for (std::uint32_t const bits : {0x7FFFFFFFU, 0xFFC00000U, 0x7F800001U, 0xFFFFFFFFU}) {
    CHECK(round_trip(bits) == 0x7FC00000U);
  }
}

TEST_CASE("ties away and ties to even differ: once in 131,072 values") {
  std::uint64_t differ = 0;
  for (std::uint32_t bits = 0x3F800000U; bits < 0x3F800000U + 131'072U * 4; ++bits) {
    std::uint32_t const to_even = (bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U;
    differ += rounded(bits) != to_even ? 1U : 0U;
  }
  CHECK(differ == 4);
}

TEST_CASE("every bf16 survives the way to fp32 and back") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    bfloat16 const x{static_cast<std::uint16_t>(bits)};
    bfloat16 const back = to_bfloat16(to_float(x));
    REQUIRE(back == (std::isnan(to_float(x)) ? bfloat16{0x7FC0} : x));
  }
}

}  // namespace bfloat16_test
