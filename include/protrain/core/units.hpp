// SPDX-License-Identifier: Apache-2.0
#pragma once
// Byte, time and rate units with literals. Times are integer picoseconds, so that equal times are
// equal and no simulation depends on rounding order.

#include "protrain/core/math.hpp"

#include <compare>
#include <cstdint>

namespace protrain::inline v0::core {

/// An amount of memory. Arithmetic is checked: overflow and negative results are contract errors.
struct bytes {
  std::uint64_t value = 0;

  PROTRAIN_HD constexpr std::uint64_t count() const noexcept { return value; }
  auto operator<=>(bytes const&) const = default;
  PROTRAIN_HD friend constexpr bytes operator+(bytes a, bytes b) {
    return {checked_add(a.value, b.value)};
  }
  PROTRAIN_HD friend constexpr bytes operator-(bytes a, bytes b) {
    return {checked_sub(a.value, b.value)};
  }
  PROTRAIN_HD friend constexpr bytes operator*(bytes a, std::uint64_t n) {
    return {checked_mul(a.value, n)};
  }
  PROTRAIN_HD constexpr bytes& operator+=(bytes b) { return *this = *this + b; }
  PROTRAIN_HD constexpr bytes& operator-=(bytes b) { return *this = *this - b; }
};

/// A duration or a point on a virtual clock, in picoseconds (2^64 ps are 213 days).
struct picoseconds {
  std::uint64_t value = 0;

  PROTRAIN_HD constexpr std::uint64_t count() const noexcept { return value; }
  /// Seconds, for people.
  constexpr double seconds() const noexcept { return static_cast<double>(value) * 1e-12; }
  auto operator<=>(picoseconds const&) const = default;
  PROTRAIN_HD friend constexpr picoseconds operator+(picoseconds a, picoseconds b) {
    return {checked_add(a.value, b.value)};
  }
  PROTRAIN_HD friend constexpr picoseconds operator-(picoseconds a, picoseconds b) {
    return {checked_sub(a.value, b.value)};
  }
  PROTRAIN_HD friend constexpr picoseconds operator*(picoseconds a, std::uint64_t n) {
    return {checked_mul(a.value, n)};
  }
  PROTRAIN_HD constexpr picoseconds& operator+=(picoseconds b) { return *this = *this + b; }
};

/// Units per second: bytes for links and memories, floating-point operations for compute.
template <class Unit>
struct rate {
  std::uint64_t per_second = 0;
  auto operator<=>(rate const&) const = default;
};
using bandwidth = rate<struct byte_unit>;
using flop_rate = rate<struct flop_unit>;

/// Time of `amount` units at `r`, rounded up; `r` must be positive.
template <class Unit>
constexpr picoseconds time_of(std::uint64_t amount, rate<Unit> r) {
  PROTRAIN_EXPECT(r.per_second > 0, "a rate must be positive");
  constexpr std::uint64_t ps = 1'000'000'000'000;
  __extension__ using wide = unsigned __int128;
  wide const t = (static_cast<wide>(amount) * ps + (r.per_second - 1)) / r.per_second;
  PROTRAIN_EXPECT(t <= ~std::uint64_t{0}, "a duration overflows 64 bits of picoseconds");
  return {static_cast<std::uint64_t>(t)};
}

inline namespace literals {

constexpr bytes operator""_B(unsigned long long n) { return {n}; }
constexpr bytes operator""_KiB(unsigned long long n) { return {checked_mul(n, 1ULL << 10)}; }
constexpr bytes operator""_MiB(unsigned long long n) { return {checked_mul(n, 1ULL << 20)}; }
constexpr bytes operator""_GiB(unsigned long long n) { return {checked_mul(n, 1ULL << 30)}; }
constexpr bytes operator""_kB(unsigned long long n) { return {checked_mul(n, 1000)}; }
constexpr bytes operator""_MB(unsigned long long n) { return {checked_mul(n, 1000'000)}; }
constexpr bytes operator""_GB(unsigned long long n) { return {checked_mul(n, 1000'000'000)}; }
constexpr picoseconds operator""_ns(unsigned long long n) { return {checked_mul(n, 1000)}; }
constexpr picoseconds operator""_us(unsigned long long n) { return {checked_mul(n, 1000'000)}; }
constexpr picoseconds operator""_ms(unsigned long long n) { return {checked_mul(n, 1000'000'000)}; }

}  // namespace literals
}  // namespace protrain::inline v0::core
