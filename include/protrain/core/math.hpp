// SPDX-License-Identifier: Apache-2.0
#pragma once
// Checked 64-bit integer arithmetic and rounding: sizes of models overflow 32 bits early and must
// never wrap silently.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <limits>

namespace protrain::inline v0::core {

PROTRAIN_HD constexpr std::uint64_t checked_add(std::uint64_t a, std::uint64_t b) {
  PROTRAIN_EXPECT(a <= std::numeric_limits<std::uint64_t>::max() - b, "64-bit sum overflows");
  return a + b;
}

PROTRAIN_HD constexpr std::uint64_t checked_sub(std::uint64_t a, std::uint64_t b) {
  PROTRAIN_EXPECT(b <= a, "64-bit difference is negative");
  return a - b;
}

PROTRAIN_HD constexpr std::uint64_t checked_mul(std::uint64_t a, std::uint64_t b) {
  PROTRAIN_EXPECT(a == 0 || b <= std::numeric_limits<std::uint64_t>::max() / a,
                  "64-bit product overflows");
  return a * b;
}

/// Smallest multiple of `step` (> 0) that is not below `value`.
PROTRAIN_HD constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t step) {
  PROTRAIN_EXPECT(step > 0, "rounding needs a positive step");
  std::uint64_t const rest = value % step;
  return rest == 0 ? value : checked_add(value, step - rest);
}

/// Quotient rounded up; `divisor` > 0.
PROTRAIN_HD constexpr std::uint64_t ceil_div(std::uint64_t value, std::uint64_t divisor) {
  PROTRAIN_EXPECT(divisor > 0, "division by zero");
  return value / divisor + (value % divisor != 0 ? 1 : 0);
}

/// floor(a * b / c) with a 128-bit product; the quotient must fit 64 bits and c > 0.
constexpr std::uint64_t mul_div(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  PROTRAIN_EXPECT(c > 0, "division by zero");
  __extension__ using wide = unsigned __int128;
  wide const q = static_cast<wide>(a) * b / c;
  PROTRAIN_EXPECT(q <= std::numeric_limits<std::uint64_t>::max(), "quotient overflows 64 bits");
  return static_cast<std::uint64_t>(q);
}

/// Every address of a program is a multiple of this many bytes.
inline constexpr std::uint64_t address_granule = 256;
/// Every tensor of a chunk starts at a multiple of this many elements, and one partial sum of the
/// norm covers this many.
inline constexpr std::uint64_t element_granule = 128;

/// Bytes an allocation of `bytes` occupies in an arena.
PROTRAIN_HD constexpr std::uint64_t granules(std::uint64_t bytes) {
  return round_up(bytes, address_granule);
}

}  // namespace protrain::inline v0::core
