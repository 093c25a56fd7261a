// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products of any size and mixed types, in tiles of one order, each multiplied by the kernel.

#include "examples/transformer/gemm_kernel.hpp"
#include "examples/transformer/simd.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <utility>

namespace transformer {

/// What a product does with the values that C held.
enum class target : std::uint8_t { overwrite, add };

/// Workspace elements of a product [m, k] x [k, n], operand types TA and TB, result TC.
template <class TA, class TB, class TC>
constexpr length gemm_workspace(length m, length n, length k) {
  using real = accumulator_t<TC>;
  length const tile_m = std::min(m, gemm_tile::m);
  length const tile_n = std::min(n, gemm_tile::n);
  length const tile_k = std::min(k, gemm_tile::k);
  return aligned(tile_n * tile_k) + aligned(tile_m * tile_k) +
         (std::same_as<TA, real> ? 0 : aligned(tile_m * tile_k)) +
         (std::same_as<TB, real> ? 0 : aligned(tile_n * tile_k)) +
         (std::same_as<TC, real> ? 0 : aligned(tile_m * tile_n));
}

namespace detail {

/// The tile at (row, column) of op(from), rows x columns; cast into `room` unless it is A already.
template <operand Op, class A, class T>
matrix<A const> operand_tile(
    matrix<T const> from, length row, length column, length rows, length columns, A* room) {
  if constexpr (Op == operand::transposed) {
    std::swap(row, column);
    std::swap(rows, columns);
  }
  T const* const first = from.data + row * from.stride + column;
  if constexpr (std::same_as<T, A>) {
    return {first, from.stride};
  } else {
    for (length i = 0; i < rows; ++i) {
      for_packs<A>(columns, [&](length j, length count) {
        store(room + i * columns + j, load(first + i * from.stride + j, count), count);
      });
    }
    return {room, columns};
  }
}

template <class A>
void fill_zero(length rows, length columns, matrix<A> c) {
  for (length i = 0; i < rows; ++i) {
    std::fill_n(c.data + i * c.stride, columns, A{});
  }
}

/// c = sum + bias (none: null), rounded once; `sum` may be c itself.
template <class T, class A>
void finish_tile(length rows, length columns, matrix<A> sum, T const* bias, matrix<T> c) {
  if (std::same_as<T, A> && bias == nullptr) {
    return;
  }
  for (length i = 0; i < rows; ++i) {
    for_packs<A>(columns, [&](length j, length count) {
      auto value = load(sum.data + i * sum.stride + j, count);
      value = bias == nullptr ? value : value + load(bias + j, count);
      store(c.data + i * c.stride + j, value, count);
    });
  }
}

}  // namespace detail

/// c[m, n] = op(a)[m, k] op(b)[k, n] + bias[n], summed in the accumulator type over ascending tiles
/// of k and rounded once. `target::add` (c in the accumulator type, no bias) adds to c instead.
template <operand OpA, operand OpB, class TA, class TB, class TC>
void gemm(length m,
          length n,
          length k,
          matrix<TA> a,
          matrix<TB> b,
          matrix<TC> c,
          TC const* bias,
          accumulator_t<TC>* workspace,
          target how = target::overwrite) {
  using real = accumulator_t<TC>;
  using a_type = std::remove_const_t<TA>;
  using b_type = std::remove_const_t<TB>;
  constexpr bool direct = std::same_as<TC, real>;
  length const deepest = std::min(k, gemm_tile::k);
  real* const packed_b = workspace;
  real* const packed_a = packed_b + aligned(std::min(n, gemm_tile::n) * deepest);
  real* const cast_a = packed_a + aligned(std::min(m, gemm_tile::m) * deepest);
  real* const cast_b =
      cast_a + (std::same_as<a_type, real> ? 0 : aligned(std::min(m, gemm_tile::m) * deepest));
  real* const sums =
      cast_b + (std::same_as<b_type, real> ? 0 : aligned(std::min(n, gemm_tile::n) * deepest));
  for (length j = 0; j < n; j += gemm_tile::n) {
    length const columns = std::min(n - j, gemm_tile::n);
    for (length i = 0; i < m; i += gemm_tile::m) {
      length const rows = std::min(m - i, gemm_tile::m);
      matrix<TC> const result{c.data + i * c.stride + j, c.stride};
      matrix<real> const sum = [&] {
        if constexpr (direct) {
          return result;
        } else {
          return matrix<real>{sums, columns};
        }
      }();
      if (!direct || how == target::overwrite) {
        detail::fill_zero(rows, columns, sum);
      }
      for (length l = 0; l < k; l += gemm_tile::k) {
        length const depth = std::min(k - l, gemm_tile::k);
        detail::multiply_tile(
            rows,
            columns,
            depth,
            detail::tile_operands<real>{.op_a = OpA,
                                        .op_b = OpB,
                                        .a = detail::operand_tile<OpA, real, a_type>(
                                            {a.data, a.stride}, i, l, rows, depth, cast_a),
                                        .b = detail::operand_tile<OpB, real, b_type>(
                                            {b.data, b.stride}, l, j, depth, columns, cast_b),
                                        .packed_b = packed_b,
                                        .packed_a = packed_a},
            sum);
      }
      detail::finish_tile(rows, columns, sum, bias == nullptr ? nullptr : bias + j, result);
    }
  }
}

}  // namespace transformer
