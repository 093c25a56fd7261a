// SPDX-License-Identifier: Apache-2.0
#pragma once
// Poison for memory that must be written before it is read, and the search for what it leads to:
// numbers that are not finite.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/dtype.hpp"

#include <cstdint>
#include <cstring>
#include <optional>

namespace protrain::inline v0::block {

/// A signalling NaN as bf16 and fp32, a NaN as fp16, close to the largest number as fp64, out of
/// every range as an index. Whatever computes with it makes another NaN.
inline constexpr std::uint16_t poison_half = 0xFFA5;

inline void poison(tensor_view const& t) noexcept {
  std::uint64_t const n = t.bytes();
  for (std::uint64_t i = 0; i < n; ++i) {
    t.raw()[i] = static_cast<std::byte>(i % 2 == 0 ? poison_half & 0xFFU : poison_half >> 8U);
  }
}

namespace detail {

/// Position of the first element whose bits `is` accepts.
template <class Bits, class Is>
std::optional<std::uint64_t> first_element(tensor_view const& t, Is const& is) {
  std::uint64_t const n = t.elements();
  for (std::uint64_t i = 0; i < n; ++i) {
    Bits bits{};
    std::memcpy(&bits, t.raw() + i * sizeof bits, sizeof bits);
    if (is(bits)) {
      return i;
    }
  }
  return std::nullopt;
}

template <class Bits>
constexpr Bits poison_of() {
  Bits out = poison_half;
  for (std::size_t i = 2; i < sizeof(Bits); i += 2) {
    out = static_cast<Bits>((out << 16U) | poison_half);
  }
  return out;
}

template <class Bits>
std::optional<std::uint64_t> first_non_finite(tensor_view const& t, Bits exponent) {
  return first_element<Bits>(t, [exponent](Bits bits) {
    return (bits & exponent) == exponent && bits != poison_of<Bits>();
  });
}

}  // namespace detail

/// The first element that isn't finite; elements that are still poison were never written and don't
/// count. None in types that have no such numbers.
inline std::optional<std::uint64_t> first_non_finite(tensor_view const& t) {
  if (!t) {
    return std::nullopt;
  }
  switch (t.type) {
    case dtype::f64:
      return detail::first_non_finite<std::uint64_t>(t, 0x7FF0000000000000U);
    case dtype::f32:
      return detail::first_non_finite<std::uint32_t>(t, 0x7F800000U);
    case dtype::bf16:
      return detail::first_non_finite<std::uint16_t>(t, 0x7F80U);
    case dtype::f16:
      return detail::first_non_finite<std::uint16_t>(t, 0x7C00U);
    default:
      return std::nullopt;
  }
}

/// The first element of a floating-point tensor that nobody has written since it was poisoned.
inline std::optional<std::uint64_t> first_poison(tensor_view const& t) {
  if (!t) {
    return std::nullopt;
  }
  switch (t.type) {
    case dtype::f64:
      return detail::first_element<std::uint64_t>(
          t, [](auto bits) { return bits == detail::poison_of<std::uint64_t>(); });
    case dtype::f32:
      return detail::first_element<std::uint32_t>(
          t, [](auto bits) { return bits == detail::poison_of<std::uint32_t>(); });
    case dtype::bf16:
    case dtype::f16:
      return detail::first_element<std::uint16_t>(t, [](auto bits) { return bits == poison_half; });
    default:
      return std::nullopt;
  }
}

}  // namespace protrain::inline v0::block
