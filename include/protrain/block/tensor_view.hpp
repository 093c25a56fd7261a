// SPDX-License-Identifier: Apache-2.0
#pragma once
// A tensor as blocks see it: address, element type, extents. Owns nothing; a few words, by value.

#include "protrain/block/fwd.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/math.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <utility>

namespace protrain::inline v0::block {

/// Up to four extents, row-major. `{}` is a scalar; an extent of 0 makes an empty tensor.
struct extents {
  std::array<std::uint64_t, 4> sizes{};
  std::uint32_t rank = 0;

  constexpr extents() = default;
  // Implicit on purpose: `{rows, columns}` of any integer types is a shape.
  template <std::integral... Sizes>
    requires(sizeof...(Sizes) >= 1 && sizeof...(Sizes) <= 4)
  constexpr extents(Sizes... n)
      : sizes{static_cast<std::uint64_t>(n)...}, rank(static_cast<std::uint32_t>(sizeof...(n))) {
    PROTRAIN_EXPECT((std::cmp_greater_equal(n, 0) && ...), "an extent is negative");
  }

  constexpr std::uint64_t operator[](std::size_t i) const {
    PROTRAIN_EXPECT(i < rank, "extent beyond the rank");
    return sizes[i];
  }
  constexpr std::uint64_t elements() const {
    std::uint64_t n = 1;
    for (std::size_t i = 0; i < rank; ++i) {
      n = checked_mul(n, sizes[i]);
    }
    return n;
  }
  bool operator==(extents const&) const = default;
};

/// Customization point: the dtype that a C++ element type stores. Specialise for your own 16-bit
/// floats.
template <class T>
struct element_type;
template <>
struct element_type<float> {
  static constexpr dtype value = dtype::f32;
};
template <>
struct element_type<double> {
  static constexpr dtype value = dtype::f64;
};
template <>
struct element_type<bfloat16> {
  static constexpr dtype value = dtype::bf16;
};
template <>
struct element_type<float16> {
  static constexpr dtype value = dtype::f16;
};
template <>
struct element_type<std::int32_t> {
  static constexpr dtype value = dtype::i32;
};
template <>
struct element_type<std::uint8_t> {
  static constexpr dtype value = dtype::u8;
};

template <class T>
inline constexpr dtype dtype_of = element_type<std::remove_cv_t<T>>::value;

/// Absent (no data) in three cases: a boundary that the block doesn't have, the gradient of a
/// frozen parameter, and every tensor of a dry run.
struct tensor_view {
  void* data = nullptr;
  dtype type = dtype::f32;
  extents shape{0};

  constexpr std::uint64_t elements() const { return shape.elements(); }
  constexpr std::uint64_t bytes() const { return checked_mul(elements(), size_of(type)); }
  constexpr bool empty() const { return elements() == 0; }
  constexpr explicit operator bool() const noexcept { return data != nullptr; }

  /// The elements as `T`, which must be what the tensor holds; `T const` for tensors one reads.
  template <class T>
  T* as() const {
    PROTRAIN_EXPECT(dtype_of<T> == type, "tensor_view::as<T>(): the tensor holds another dtype");
    return static_cast<T*>(data);
  }
  template <class T>
  std::span<T> elements_as() const {
    T* const first = as<T>();
    return {first, first == nullptr ? 0 : static_cast<std::size_t>(elements())};
  }
  std::byte* raw() const noexcept { return static_cast<std::byte*>(data); }

  bool operator==(tensor_view const&) const = default;
};

}  // namespace protrain::inline v0::block
