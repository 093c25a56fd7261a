// SPDX-License-Identifier: Apache-2.0
// Half precision: every half against its definition, and rounding against real arithmetic.

#include "protrain/core/float16.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

namespace float16_test {

namespace {

using protrain::float16;
using protrain::to_float;
using protrain::to_float16;

constexpr float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }
constexpr std::uint16_t rounded(float x) { return to_float16(x).bits; }

static_assert(std::is_trivially_copyable_v<float16>);
static_assert(to_float(float16{0x3C00}) == 1.0F && to_float(float16{0x7BFF}) == 65504.0F);
static_assert(to_float(float16{0x0001}) == 0x1p-24F && to_float(float16{0x83FF}) == -0x3FFp-24F);

// Ties go to even: in the normal range, into the subnormals, out of them and to zero.
static_assert(rounded(2049.0F) == 0x6800 && rounded(2051.0F) == 0x6802);
static_assert(rounded(0x1p-25F) == 0x0000 && rounded(0x1.8p-24F) == 0x0002);
static_assert(rounded(0x1.000002p-25F) == 0x0001 && rounded(-0x1p-25F) == 0x8000);
static_assert(rounded(0x1p-14F - 0x1p-25F) == 0x0400 && rounded(0x1p-14F - 0x1p-24F) == 0x03FF);
static_assert(rounded(65519.996F) == 0x7BFF && rounded(65520.0F) == 0x7C00);
static_assert(rounded(-65520.0F) == 0xFC00 && rounded(0x1p127F) == 0x7C00);
static_assert(rounded(from_bits(0x7F800000U)) == 0x7C00);
static_assert(rounded(from_bits(0xFF800000U)) == 0xFC00);
static_assert(rounded(0.0F) == 0x0000 && rounded(-0.0F) == 0x8000);
static_assert(rounded(from_bits(0x00000001U)) == 0x0000);
static_assert(rounded(from_bits(0x7F800001U)) == 0x7E00 &&
              rounded(from_bits(0xFFC00000U)) == 0x7E00);
static_assert(rounded(from_bits(0x7FFFFFFFU)) == 0x7E00 &&
              rounded(from_bits(0xFFFFFFFFU)) == 0x7E00);

/// By definition: sign, exponent and fraction as a number.
double value_of(std::uint32_t half) {
  int const exponent = static_cast<int>((half >> 10U) & 0x1FU);
  double const fraction = static_cast<double>(half & 0x3FFU);
  double const magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25);
  return (half & 0x8000U) != 0 ? -magnitude : magnitude;
}

/// Nearest half of a finite value, by numbers: units of the last place, to even.
double nearest(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  double const unit = std::ldexp(1.0, (exponent < -13 ? -13 : exponent) - 11);
  double const result = std::nearbyint(x / unit) * unit;
  return std::abs(result) < 65536.0 ? result : std::copysign(HUGE_VAL, result);
}

void check_rounding(std::uint32_t bits) {
  float const x = from_bits(bits);
  std::uint16_t const got = rounded(x);
  if (std::isnan(x)) {
    REQUIRE(got == 0x7E00);
    return;
  }
  double const want = std::isinf(x) ? static_cast<double>(x) : nearest(static_cast<double>(x));
  auto const value = static_cast<double>(to_float(float16{got}));
  if (value != want || std::signbit(value) != std::signbit(x)) {
    FAIL("pattern " << bits);  // one assertion per pattern would take most of the time
  }
}

}  // namespace

TEST_CASE("every half is the number it is defined as, and survives the way to fp32 and back") {
  for (std::uint32_t bits = 0; bits < 0x10000U; ++bits) {
    float16 const half{static_cast<std::uint16_t>(bits)};
    float const x = to_float(half);
    CAPTURE(bits);
    if ((bits & 0x7C00U) != 0x7C00U) {
      REQUIRE(static_cast<double>(x) == value_of(bits));
      REQUIRE(std::signbit(x) == ((bits & 0x8000U) != 0));
    } else if ((bits & 0x03FFU) == 0) {
      REQUIRE(std::isinf(x));
      REQUIRE(std::signbit(x) == ((bits & 0x8000U) != 0));
    } else {
      REQUIRE(std::isnan(x));
    }
    REQUIRE(to_float16(x) == (std::isnan(x) ? float16{0x7E00} : half));
  }
}

TEST_CASE("rounding is to nearest, ties to even, over all patterns (prime stride)") {
  for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += 1009) {
    check_rounding(static_cast<std::uint32_t>(bits));
  }
}

TEST_CASE("rounding is right at, above and below every tie and every half") {
  for (std::uint32_t bits = 0; bits < 0x7C00U; ++bits) {
    float const here = to_float(float16{static_cast<std::uint16_t>(bits)});
    float const next =
        bits + 1 == 0x7C00U ? 65536.0F : to_float(float16{static_cast<std::uint16_t>(bits + 1)});
    float const middle = (here + next) / 2;  // exact
    for (float const x : {here, middle}) {
      auto const pattern = std::bit_cast<std::uint32_t>(x);
      for (std::uint32_t const near : {pattern == 0 ? 0U : pattern - 1, pattern, pattern + 1}) {
        check_rounding(near);
        check_rounding(near | 0x80000000U);
      }
    }
  }
}

}  // namespace float16_test
