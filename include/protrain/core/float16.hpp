// SPDX-License-Identifier: Apache-2.0
#pragma once
// IEEE half precision: the exact way to fp32 and the rounded way back, in integer arithmetic, so
// that no compiler flag and no floating-point environment changes a bit.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"

#include <bit>
#include <cstdint>

namespace protrain::inline v0::core {

/// 1 sign, 5 exponent and 10 fraction bits. Equality is equality of bits: NaN equals NaN and +0
/// differs from -0.
struct float16 {
  std::uint16_t bits{};

  bool operator==(float16 const&) const = default;
};

static_assert(sizeof(float16) == 2);

/// Exact; a NaN keeps its payload.
PROTRAIN_HD constexpr float to_float(float16 x) noexcept {
  std::uint32_t const sign = (x.bits & 0x8000U) << 16U;
  std::uint32_t const exponent = (x.bits >> 10U) & 0x1FU;
  std::uint32_t const fraction = x.bits & 0x03FFU;
  if (exponent == 0x1FU) {
    return std::bit_cast<float>(sign | 0x7F800000U | (fraction << 13U));
  }
  if (exponent != 0) {
    return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (fraction << 13U));
  }
  // A subnormal half is a normal fp32: no flush to zero can reach it.
  float const magnitude = static_cast<float>(static_cast<std::int32_t>(fraction)) * 0x1p-24F;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

/// Nearest, ties to even; from 65520 on infinity, below 2^-14 subnormal; every NaN is 0x7E00.
PROTRAIN_HD constexpr float16 to_float16(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  std::uint32_t const sign = (bits >> 16U) & 0x8000U;
  std::uint32_t const magnitude = bits & 0x7FFFFFFFU;
  std::uint32_t half = 0;
  if (is_nan_bits(bits)) {
    return {0x7E00U};
  }
  if (magnitude >= 0x477FF000U) {  // 65520, half way between the largest half and 2^16
    half = 0x7C00U;
  } else if (magnitude >= 0x38800000U) {  // 2^-14
    half = ((magnitude + 0x0FFFU + ((magnitude >> 13U) & 1U)) >> 13U) - (112U << 10U);
  } else if (magnitude > 0x33000000U) {  // 2^-25, whose tie goes to zero
    std::uint32_t const significand = (magnitude & 0x007FFFFFU) | 0x00800000U;
    std::uint32_t const shift = 126U - (magnitude >> 23U);  // 14 to 24: units of 2^-24 remain
    std::uint32_t const rest = significand & ((1U << shift) - 1U);
    std::uint32_t const tie = 1U << (shift - 1U);
    half = significand >> shift;
    bool const up = rest > tie || (rest == tie && (half & 1U) != 0);
    half += up ? 1U : 0U;
  }
  return {static_cast<std::uint16_t>(sign | half)};
}

}  // namespace protrain::inline v0::core
