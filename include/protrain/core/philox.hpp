// SPDX-License-Identifier: Apache-2.0
#pragma once
// Counter-based random numbers: a draw is a pure function of (seed, step, sample, block, operator,
// element), in integer arithmetic throughout, so that every machine and compiler flag agrees.

#include "protrain/core/config.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::core {

using philox_words = std::array<std::uint32_t, 4>;

/// Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). For a
/// fixed key it is a bijection of counters.
PROTRAIN_HD constexpr philox_words philox4x32(philox_words counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    std::uint64_t const a = std::uint64_t{0xD2511F53U} * counter[0];
    std::uint64_t const b = std::uint64_t{0xCD9E8D57U} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32U) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32U) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(a)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

/// FNV-1a, 64 bits.
constexpr std::uint64_t hash_name(std::string_view name) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (char const c : name) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
  }
  return hash;
}

/// Uniform in [0, 1): a multiple of 2^-24, hence exact in any rounding mode.
PROTRAIN_HD constexpr float to_uniform(std::uint32_t word) noexcept {
  return static_cast<float>(static_cast<std::int32_t>(word >> 8U)) * 0x1p-24F;
}

namespace detail {

/// Horner's rule in fixed point: u is Q30 in [-1, 1], coefficients from the constant term up.
template <std::size_t N>
PROTRAIN_HD constexpr std::int64_t polynomial(std::array<std::int64_t, N> const& c,
                                              std::int64_t u) noexcept {
  std::int64_t sum = c[N - 1];
  for (std::size_t i = N - 1; i > 0; --i) {
    sum = c[i - 1] + ((sum * u + (std::int64_t{1} << 29U)) >> 30U);
  }
  return sum;
}

/// -ln(n / 2^64) in Q30, within 1e-8, for n >= 2^32.
PROTRAIN_HD constexpr std::int64_t minus_log(std::uint64_t n) noexcept {
  std::int64_t halvings = 1;  // n / 2^64 = m / 2^halvings, m in [1, 2)
  for (; (n >> 63U) == 0; n <<= 1U) {
    ++halvings;
  }
  // Chebyshev interpolation of ln m in 2 m - 3.
  std::array<std::int64_t, 10> const c{
      435364840, 357913949, -59652094, 13255915, -3315823, 884599, -240557, 68224, -25801, 7870};
  std::int64_t const u = static_cast<std::int64_t>(n >> 32U) - (3 * (std::int64_t{1} << 30U));
  return (halvings * 744261118) - polynomial(c, u);  // ln 2 in Q30
}

/// z / x in Q29 for w = -ln(1 - x^2) in Q30, 0 <= w < 24, where z is the standard normal quantile
/// of (1 + x) / 2: as a function of w this ratio is smooth (Giles, "Approximating the erfinv
/// function", 2010). Chebyshev interpolation on [0,4], [4,8], [8,16] and [16,24], within 3e-8.
PROTRAIN_HD constexpr std::int64_t quantile_ratio(std::int64_t w) noexcept {
  using coefficients = std::array<std::int64_t, 9>;
  std::int64_t const one = std::int64_t{1} << 30U;
  if (w < 4 * one) {
    return polynomial(
        coefficients{
            1045650821, 379273016, -5977221, -10280014, 2622959, 191222, -236176, 20976, 12706},
        (w - 2 * one) >> 1U);
  }
  if (w < 8 * one) {
    return polynomial(
        coefficients{
            1735968023, 303289020, -20186439, 1552975, 171871, -127909, 34782, -4412, -290},
        (w - 6 * one) >> 1U);
  }
  if (w < 16 * one) {
    return polynomial(
        coefficients{
            2505014533, 441476769, -35902024, 5656858, -1061280, 201843, -29474, -6106, 5219},
        (w - 12 * one) >> 2U);
  }
  return polynomial(
      coefficients{3277382813, 343014950, -17095458, 1679193, -204470, 27694, -3996, 629, -95},
      (w - 20 * one) >> 2U);
}

}  // namespace detail

/// Standard normal: the quantile of (word + 1/2) / 2^32 as a multiple of 2^-21, within 4e-7 of the
/// true one; |z| < 6.4, monotone, antisymmetric under ~word. No libm, no rounding of floats.
PROTRAIN_HD constexpr float to_normal(std::uint32_t word) noexcept {
  bool const positive = (word >> 31U) != 0;
  // |2 (word + 1/2) / 2^32 - 1| in Q32, and the tail beyond it: 1 - x^2 = q (2 - q) fits 64 bits.
  std::uint64_t const x = (2 * std::uint64_t{(positive ? word : ~word) & 0x7FFFFFFFU}) + 1;
  std::uint64_t const q = (std::uint64_t{1} << 32U) - x;
  std::int64_t const w = detail::minus_log(q * ((std::uint64_t{1} << 33U) - q));
  auto const ratio = static_cast<std::uint64_t>(detail::quantile_ratio(w));
  auto const z = static_cast<std::int32_t>((x * ratio + (std::uint64_t{1} << 39U)) >> 40U);
  return static_cast<float>(positive ? z : -z) * 0x1p-21F;
}

/// A sequence of words addressed by element. The 64 bits of `key` and the 64 of `lane` name the
/// sequence: the key of Philox and the upper half of its counter, whose lower half is element / 4.
struct random_stream {
  std::uint64_t key = 0;
  std::uint64_t lane = 0;

  /// The words of elements 4 index .. 4 index + 3, at the price of one.
  PROTRAIN_HD constexpr philox_words quad(std::uint64_t index) const noexcept {
    return philox4x32({static_cast<std::uint32_t>(index),
                       static_cast<std::uint32_t>(index >> 32U),
                       static_cast<std::uint32_t>(lane),
                       static_cast<std::uint32_t>(lane >> 32U)},
                      {static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32U)});
  }

  PROTRAIN_HD constexpr std::uint32_t word(std::uint64_t element) const noexcept {
    return quad(element / 4)[element % 4];
  }

  /// In [0, 1).
  PROTRAIN_HD constexpr float uniform(std::uint64_t element) const noexcept {
    return to_uniform(word(element));
  }

  PROTRAIN_HD constexpr float normal(std::uint64_t element) const noexcept {
    return to_normal(word(element));
  }

  bool operator==(random_stream const&) const = default;
};

/// Where a draw belongs. `step` counts attempted steps, `sample` is global: nothing here depends on
/// ranks, micro-batches or plans.
struct random_key {
  std::uint64_t seed = 0;
  std::uint64_t step = 0;    // below 2^40
  std::uint64_t sample = 0;  // below 2^48
  std::uint32_t block = 0;   // below 2^20
  std::uint32_t op = 0;      // below 2^20

  bool operator==(random_key const&) const = default;
};

/// The block under which the data of a step are drawn; no model has so many.
inline constexpr std::uint32_t data_block = (1U << 20U) - 1;

/// One Philox pass turns the place into a stream. Under one seed distinct places give distinct
/// streams, with certainty: (step, sample, block, op) fill the 128 bits of the counter, and the
/// pass is a bijection. Between seeds two given streams coincide with probability 2^-128.
PROTRAIN_HD constexpr random_stream make_stream(random_key const& at) {
  PROTRAIN_EXPECT(at.step < (std::uint64_t{1} << 40U), "random key: step needs more than 40 bits");
  PROTRAIN_EXPECT(at.sample < (std::uint64_t{1} << 48U),
                  "random key: sample needs more than 48 bits");
  PROTRAIN_EXPECT(at.block < (1U << 20U), "random key: block needs more than 20 bits");
  PROTRAIN_EXPECT(at.op < (1U << 20U), "random key: operator needs more than 20 bits");
  std::uint64_t const low = at.step | (at.sample << 40U);  // the upper half of sample follows
  std::uint64_t const high =
      (at.sample >> 24U) | (std::uint64_t{at.block} << 24U) | (std::uint64_t{at.op} << 44U);
  philox_words const mixed =
      philox4x32({static_cast<std::uint32_t>(low),
                  static_cast<std::uint32_t>(low >> 32U),
                  static_cast<std::uint32_t>(high),
                  static_cast<std::uint32_t>(high >> 32U)},
                 {static_cast<std::uint32_t>(at.seed), static_cast<std::uint32_t>(at.seed >> 32U)});
  return {.key = mixed[0] | (std::uint64_t{mixed[1]} << 32U),
          .lane = mixed[2] | (std::uint64_t{mixed[3]} << 32U)};
}

/// Initial values of a parameter: a function of seed, name and element, whatever the layout.
PROTRAIN_HD constexpr random_stream initial_stream(std::uint64_t seed,
                                                   std::uint64_t name_hash) noexcept {
  return {.key = seed, .lane = name_hash};
}

}  // namespace protrain::inline v0::core
