// SPDX-License-Identifier: Apache-2.0
#pragma once
// The 16-bit brain float and the split of an fp32 master into a working value and its rest.
// One rounding (nearest, ties away from zero) serves every state format, export and load.

#include "protrain/core/config.hpp"

#include <bit>
#include <cstdint>

namespace protrain::inline v0::core {

/// The one NaN that is ever stored: the usual canonical NaNs of x86 and of CUDA would not both
/// survive the split. (Write a copy of it into ?:, which may take its address; devices have none.)
inline constexpr std::uint32_t canonical_nan_bits = 0x7FC00000U;

/// Whether the fp32 with these bits is a NaN. Asks the bits, so -ffast-math can't fold it away.
PROTRAIN_HD constexpr bool is_nan_bits(std::uint32_t bits) noexcept {
  return (bits & 0x7FFFFFFFU) > 0x7F800000U;
}

/// Upper half of an fp32. Equality is equality of bits: NaN equals NaN and +0 differs from -0.
struct bfloat16 {
  std::uint16_t bits{};

  bool operator==(bfloat16 const&) const = default;
};

static_assert(sizeof(bfloat16) == 2);

/// Exact.
PROTRAIN_HD constexpr float to_float(bfloat16 x) noexcept {
  return std::bit_cast<float>(std::uint32_t{x.bits} << 16U);
}

/// Nearest, ties away from zero; beyond the largest finite value infinity; every NaN is 0x7FC0.
PROTRAIN_HD constexpr bfloat16 to_bfloat16(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  std::uint32_t const kept = is_nan_bits(bits) ? canonical_nan_bits : bits + 0x8000U;
  return {static_cast<std::uint16_t>(kept >> 16U)};
}

/// An fp32 master in two halves: `hi` is the working bf16 parameter itself, `lo` what it rounds off.
struct split_value {
  bfloat16 hi{};
  std::int16_t lo{};

  bool operator==(split_value const&) const = default;
};

/// Lossless for every value but the payload of a NaN, which becomes the canonical one. Ties away
/// from zero keep the rest inside 16 bits; ties to even would need a 17th.
PROTRAIN_HD constexpr split_value split_master(float master) noexcept {
  auto bits = std::bit_cast<std::uint32_t>(master);
  bits = is_nan_bits(bits) ? std::uint32_t{canonical_nan_bits} : bits;
  std::uint32_t const hi = (bits + 0x8000U) >> 16U;
  std::uint32_t const rest = bits - (hi << 16U);
  return {{static_cast<std::uint16_t>(hi)}, static_cast<std::int16_t>(rest & 0xFFFFU)};
}

/// Inverse of `split_master`.
PROTRAIN_HD constexpr float merge_master(bfloat16 hi, std::int16_t lo) noexcept {
  auto const rest = static_cast<std::uint32_t>(std::int32_t{lo});
  return std::bit_cast<float>((std::uint32_t{hi.bits} << 16U) + rest);
}

/// Inverse of `split_master`.
PROTRAIN_HD constexpr float merge_master(split_value x) noexcept {
  return merge_master(x.hi, x.lo);
}

}  // namespace protrain::inline v0::core
