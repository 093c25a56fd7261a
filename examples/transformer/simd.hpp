// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sixteen-byte vectors and loops over them in one fixed order: the same bits wherever the data lie
// and whatever the compiler vectorises. Not a reduction of Eigen's: those peel to an aligned address.

#include <protrain/core/bfloat16.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numbers>

namespace transformer {

using protrain::core::bfloat16;

/// Counts and offsets, in elements.
using length = std::int64_t;

template <class T>
struct accumulator_of {
  using type = T;
};

template <>
struct accumulator_of<bfloat16> {
  using type = float;
};

/// What sums of T are kept in: float for float and bfloat16, double for double.
template <class T>
using accumulator_t = typename accumulator_of<T>::type;

/// As many A as fit 16 bytes, which every 64-bit x86 and ARM has registers for.
template <class A>
struct pack {
  using vector [[gnu::vector_size(16)]] = A;
  static constexpr length width = 16 / length{sizeof(A)};

  vector v;

  static pack all(A a) { return {a - vector{}}; }

  friend pack operator+(pack a, pack b) { return {a.v + b.v}; }
  friend pack operator-(pack a, pack b) { return {a.v - b.v}; }
  friend pack operator*(pack a, pack b) { return {a.v * b.v}; }
  friend pack operator/(pack a, pack b) { return {a.v / b.v}; }

  /// Lane by lane; b where a is a NaN.
  friend pack max(pack a, pack b) { return {a.v > b.v ? a.v : b.v}; }
  friend pack min(pack a, pack b) { return {a.v < b.v ? a.v : b.v}; }
};

/// The first `count` lanes of a, `fill` in the others.
template <class A>
pack<A> first_lanes(pack<A> a, length count, A fill = A{}) {
  for (length i = count; i < pack<A>::width; ++i) {
    a.v[i] = fill;
  }
  return a;
}

namespace detail {

using u16x4 [[gnu::vector_size(8)]] = std::uint16_t;
using u32x4 [[gnu::vector_size(16)]] = std::uint32_t;
using i32x4 [[gnu::vector_size(16)]] = std::int32_t;

template <class A>
pack<A> load_whole(A const* from) {
  pack<A> a{};
  std::memcpy(&a, from, sizeof(a));
  return a;
}

inline pack<float> load_whole(bfloat16 const* from) {
  u16x4 bits{};
  std::memcpy(&bits, from, sizeof(bits));
  return {std::bit_cast<pack<float>::vector>(__builtin_convertvector(bits, u32x4) << 16U)};
}

template <class A>
void store_whole(A* to, pack<A> a) {
  std::memcpy(to, &a, sizeof(a));
}

/// Bit for bit `to_bfloat16`.
inline void store_whole(bfloat16* to, pack<float> a) {
  auto const bits = std::bit_cast<u32x4>(a.v);
  u32x4 const nan = u32x4{} + protrain::core::canonical_nan_bits;
  auto const magnitude = std::bit_cast<i32x4>(bits & 0x7FFFFFFFU);
  u32x4 const kept = (magnitude > 0x7F800000) ? nan : bits + 0x8000U;
  u16x4 const half = __builtin_convertvector(kept >> 16U, u16x4);
  std::memcpy(static_cast<void*>(to), &half, sizeof(half));
}

}  // namespace detail

/// `count` (1 up to the width) elements, zeros behind them.
template <class T>
pack<accumulator_t<T>> load(T const* from, length count) {
  constexpr length width = pack<accumulator_t<T>>::width;
  if (count == width) {
    return detail::load_whole(from);
  }
  T part[static_cast<std::size_t>(width)] = {};
  std::memcpy(static_cast<void*>(part), from, static_cast<std::size_t>(count) * sizeof(T));
  return detail::load_whole(part);
}

/// The first `count` lanes, rounded once to T.
template <class T>
void store(T* to, pack<accumulator_t<T>> a, length count) {
  constexpr length width = pack<accumulator_t<T>>::width;
  if (count == width) {
    detail::store_whole(to, a);
    return;
  }
  T part[static_cast<std::size_t>(width)];
  detail::store_whole(part, a);
  std::memcpy(static_cast<void*>(to), part, static_cast<std::size_t>(count) * sizeof(T));
}

/// body(i, count) over [0, n): whole packs, then what is left.
template <class A, class Body>
void for_packs(length n, Body const& body) {
  length i = 0;
  for (; i + pack<A>::width <= n; i += pack<A>::width) {
    body(i, pack<A>::width);
  }
  if (i < n) {
    body(i, n - i);
  }
}

/// Sum of term(i, count) over [0, n): even and odd packs apart, then lanes pairwise.
template <class A, class Term>
A sum_packs(length n, Term const& term) {
  constexpr length width = pack<A>::width;
  pack<A> even{};
  pack<A> odd{};
  length i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    even = even + term(i, width);
    odd = odd + term(i + width, width);
  }
  if (i + width <= n) {
    even = even + term(i, width);
    i += width;
  }
  if (i < n) {
    odd = odd + first_lanes(term(i, n - i), n - i);
  }
  auto const v = (even + odd).v;
  if constexpr (width == 4) {
    return (v[0] + v[2]) + (v[1] + v[3]);
  } else {
    return v[0] + v[1];
  }
}

/// Largest of term(i, count) over [0, n).
template <class A, class Term>
A max_packs(length n, Term const& term) {
  constexpr A least = -std::numeric_limits<A>::infinity();
  pack<A> most = pack<A>::all(least);
  for_packs<A>(n, [&](length i, length count) {
    most = max(most, first_lanes(term(i, count), count, least));
  });
  A largest = most.v[0];
  for (length i = 1; i < pack<A>::width; ++i) {
    largest = largest < most.v[i] ? most.v[i] : largest;
  }
  return largest;
}

/// done(j, count, sum over rows r of term(r, j, count)): each column adds its rows in ascending
/// order; 64 bytes of columns at a time, so that a cache line is read once.
template <class A, class Term, class Done>
void sum_columns(length rows, length columns, Term const& term, Done const& done) {
  constexpr length width = pack<A>::width;
  constexpr length group = 4;
  length j = 0;
  for (; j + group * width <= columns; j += group * width) {
    pack<A> a{};
    pack<A> b{};
    pack<A> c{};
    pack<A> d{};
    for (length r = 0; r < rows; ++r) {
      a = a + term(r, j, width);
      b = b + term(r, j + width, width);
      c = c + term(r, j + 2 * width, width);
      d = d + term(r, j + 3 * width, width);
    }
    done(j, width, a);
    done(j + width, width, b);
    done(j + 2 * width, width, c);
    done(j + 3 * width, width, d);
  }
  for_packs<A>(columns - j, [&](length k, length count) {
    pack<A> sum{};
    for (length r = 0; r < rows; ++r) {
      sum = sum + term(r, j + k, count);
    }
    done(j + k, count, sum);
  });
}

/// e^x within 2 units in the last place; 0 below the smallest normal result, infinity above the
/// largest but a factor of 1.4. No libm: that picks its code by the machine.
inline pack<float> exp(pack<float> x) {
  using packf = pack<float>;
  constexpr float lowest = -87.33654F;     // ln 2^-126
  constexpr float highest = 88.37626F;     // 127.5 ln 2: the exponent below stays under 128
  constexpr float to_integer = 0x1.8p23F;  // adding it leaves the nearest integer in the low bits
  packf const inside = min(max(x, packf::all(lowest)), packf::all(highest));
  packf const shifted = inside * packf::all(std::numbers::log2e_v<float>) + packf::all(to_integer);
  packf const whole = shifted - packf::all(to_integer);
  // ln 2 in two parts, the first short enough to be exact in the product.
  packf const rest =
      inside - whole * packf::all(355.0F / 512.0F) - whole * packf::all(-0x1.bd0106p-13F);
  packf sum = packf::all(1.0F / 5040.0F);  // Taylor: |rest| <= ln 2 / 2, the next term is 5e-9
  for (float const c :
       {1.0F / 720.0F, 1.0F / 120.0F, 1.0F / 24.0F, 1.0F / 6.0F, 0.5F, 1.0F, 1.0F}) {
    sum = sum * rest + packf::all(c);
  }
  auto const power = std::bit_cast<detail::u32x4>(shifted.v) << 23U;
  packf result{std::bit_cast<packf::vector>(std::bit_cast<detail::u32x4>(sum.v) + power)};
  result.v = x.v < packf::all(lowest).v ? packf{}.v : result.v;
  result.v =
      x.v > packf::all(highest).v ? packf::all(std::numeric_limits<float>::infinity()).v : result.v;
  auto const magnitude = std::bit_cast<detail::i32x4>(x.v) & 0x7FFFFFFF;
  return {magnitude > 0x7F800000 ? x.v : result.v};
}

inline pack<double> exp(pack<double> x) {
  for (length i = 0; i < pack<double>::width; ++i) {
    x.v[i] = std::exp(x.v[i]);
  }
  return x;
}

/// Natural logarithm, in fp64 so that the last bit of libm's result hardly ever matters.
template <class A>
A log(A x) {
  return static_cast<A>(std::log(static_cast<double>(x)));
}

/// `elements` rounded up to 256 bytes of float: keeps what follows in a workspace aligned.
constexpr length aligned(length elements) { return (elements + 63) / 64 * 64; }

}  // namespace transformer
