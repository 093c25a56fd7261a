// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one product that everything else is made of, compiled by itself: Eigen takes long to compile,
// and a debug build would crawl if its kernel weren't optimised.

#include "examples/transformer/simd.hpp"

#include <cstdint>

namespace transformer {

/// Row-major: element (i, j) is data[i * stride + j].
template <class T>
struct matrix {
  T* data;
  length stride;
};

template <class T>
matrix(T*, length) -> matrix<T>;

enum class operand : std::uint8_t { as_is, transposed };

/// One packed block of each operand: 192 x 256 and 256 x 128 floats, 320 KiB, fit most L2 caches.
struct gemm_tile {
  static constexpr length m = 128;
  static constexpr length n = 192;
  static constexpr length k = 256;
};

namespace detail {

/// How the operands of a tile lie, and room for them when they are packed: min(n, gemm_tile::n) *
/// min(k, gemm_tile::k) and min(m, gemm_tile::m) * min(k, gemm_tile::k) elements.
template <class A>
struct tile_operands {
  operand op_a;
  operand op_b;
  matrix<A const> a;
  matrix<A const> b;
  A* packed_b;
  A* packed_a;
};

/// c[m, n] += op(a)[m, k] op(b)[k, n] for one tile, no larger than gemm_tile; allocates nothing.
void multiply_tile(length m, length n, length k, tile_operands<float> const& from, matrix<float> c);
void multiply_tile(
    length m, length n, length k, tile_operands<double> const& from, matrix<double> c);

}  // namespace detail

}  // namespace transformer
