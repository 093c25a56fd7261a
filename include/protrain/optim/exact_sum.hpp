// SPDX-License-Identifier: Apache-2.0
#pragma once
// A sum of non-negative fp32 values without rounding: whoever adds whatever in which order, on one
// rank or many, the result is the same.

#include "protrain/core/config.hpp"
#include "protrain/core/strict_math.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::optim {

/// A 320-bit fixed-point number whose lowest bit is 2^-149, the smallest fp32: room for 2^43 of the
/// largest fp32. Holds no padding, so its bytes can be sent as they are.
class exact_sum {
 public:
  static constexpr std::size_t limbs = 5;

  /// Adds a finite value >= 0. An infinity or a NaN is counted instead, and so is a sum that does
  /// not fit.
  PROTRAIN_HD constexpr void add(float x) {
    auto const bits = std::bit_cast<std::uint32_t>(x);
    std::uint32_t const exponent = (bits >> 23U) & 0xFFU;
    if (exponent == 0xFFU) {
      ++non_finite_;
      return;
    }
    PROTRAIN_EXPECT((bits >> 31U) == 0 || bits == 0x80000000U, "exact_sum takes no negative value");
    std::uint32_t const fraction = bits & 0x007FFFFFU;
    if (exponent == 0) {
      add_shifted(fraction, 0);
    } else {
      add_shifted(fraction | 0x00800000U, exponent - 1);
    }
  }

  /// Adds value * 2^(shift - 149), for partial sums that come as integers; shift < 64 * limbs.
  PROTRAIN_HD constexpr void add_shifted(std::uint64_t value, std::uint32_t shift) {
    PROTRAIN_EXPECT(shift < 64 * limbs, "exact_sum: shift beyond the highest limb");
    std::size_t const limb = shift / 64;
    std::uint32_t const bit = shift % 64;
    std::uint64_t const high = bit == 0 ? 0 : value >> (64 - bit);
    std::uint64_t const carry = add_to(limb, value << bit);
    add_carries(limb + 1, high, carry);
  }

  PROTRAIN_HD constexpr void merge(exact_sum const& other) noexcept {
    std::uint64_t carry = 0;
    for (std::size_t i = 0; i < limbs; ++i) {
      std::uint64_t const with_carry = other.limb_[i] + carry;
      // At most one of the two additions wraps.
      carry = (with_carry < carry ? 1U : 0U) + add_to(i, with_carry);
    }
    non_finite_ += other.non_finite_ + carry;
  }

  /// Whether every value was finite; if not, `value` is a NaN.
  PROTRAIN_HD constexpr bool finite() const noexcept { return non_finite_ == 0; }

  /// How many values were not finite.
  PROTRAIN_HD constexpr std::uint64_t non_finite() const noexcept { return non_finite_; }

  /// The sum rounded once, to nearest, ties to even.
  PROTRAIN_HD constexpr double value() const noexcept {
    if (!finite()) {
      return std::bit_cast<double>(std::uint64_t{0x7FF8000000000000U});
    }
    std::size_t top = limbs;
    while (top > 0 && limb_[top - 1] == 0) {
      --top;
    }
    if (top == 0) {
      return 0.0;
    }
    // The 64 bits from the highest set one down, and whether anything lies below them.
    auto const zeros = static_cast<std::uint32_t>(std::countl_zero(limb_[top - 1]));
    std::uint64_t window = limb_[top - 1] << zeros;
    bool rest = false;
    if (top > 1) {
      std::uint64_t const next = limb_[top - 2];
      window |= zeros == 0 ? 0 : next >> (64 - zeros);
      rest = (next << zeros) != 0;
    }
    for (std::size_t i = 2; i < top; ++i) {
      rest = rest || limb_[top - 1 - i] != 0;
    }
    return rounded(window, rest, (64 * top) - 1 - zeros);
  }

  bool operator==(exact_sum const&) const = default;

 private:
  /// window / 2^63 * 2^(position - 149), plus something below window's last bit if `rest`.
  static PROTRAIN_HD constexpr double rounded(std::uint64_t window,
                                              bool rest,
                                              std::uint64_t position) noexcept {
    std::uint64_t const kept = window >> 11U;  // 53 bits, the highest set
    std::uint64_t const cut = window & 0x7FFU;
    bool const up = cut > 0x400U || (cut == 0x400U && (rest || (kept & 1U) != 0));
    // A carry out of the fraction moves into the exponent by itself: 2^53 is the next power.
    std::uint64_t const exponent = position - 149 + 1023;
    return std::bit_cast<double>((exponent << 52U) + (kept - (std::uint64_t{1} << 52U)) +
                                 (up ? 1U : 0U));
  }

  PROTRAIN_HD constexpr std::uint64_t add_to(std::size_t i, std::uint64_t x) noexcept {
    limb_[i] += x;
    return limb_[i] < x ? 1 : 0;
  }

  PROTRAIN_HD constexpr void add_carries(std::size_t from,
                                         std::uint64_t high,
                                         std::uint64_t carry) noexcept {
    std::uint64_t x = high + carry;  // high <= 2^63 - 1: no wrap
    for (std::size_t i = from; i < limbs && x != 0; ++i) {
      x = add_to(i, x);
    }
    non_finite_ += x != 0 ? 1 : 0;
  }

  std::array<std::uint64_t, limbs> limb_{};
  std::uint64_t non_finite_ = 0;
};
static_assert(std::is_trivially_copyable_v<exact_sum> && sizeof(exact_sum) <= 64);
static_assert(std::has_unique_object_representations_v<exact_sum>);

}  // namespace protrain::inline v0::optim
