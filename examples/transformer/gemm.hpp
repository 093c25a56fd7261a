// SPDX-License-Identifier: Apache-2.0
#pragma once
// Matrix products on Eigen's packed kernel, in tiles of fixed size: Eigen's own driver allocates,
// sizes its blocks by the caches it finds, and leaves small products to loops that peel by address.

#include "examples/transformer/simd.hpp"

#include <Eigen/Core>

#include <algorithm>
#include <concepts>

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

/// What a product does with the values that C held.
enum class target : std::uint8_t { overwrite, add };

/// One packed block of each operand: 192 x 256 and 256 x 128 floats, 320 KiB, fit most L2 caches.
struct gemm_tile {
  static constexpr length m = 128;
  static constexpr length n = 192;
  static constexpr length k = 256;
};

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

/// Eigen's blocking with our block sizes and our memory.
template <class A>
struct tile_blocking : Eigen::internal::level3_blocking<A, A> {
  tile_blocking(A* left, A* right) {
    this->m_blockA = left;
    this->m_blockB = right;
    this->m_mc = gemm_tile::n;
    this->m_nc = gemm_tile::m;
    this->m_kc = gemm_tile::k;
  }
};

/// c += a b for one tile. Eigen wants the result by columns, hence c' += b' a'.
template <operand OpA, operand OpB, class A>
void multiply_tile(length m,
                   length n,
                   length k,
                   matrix<A const> a,
                   matrix<A const> b,
                   matrix<A> c,
                   tile_blocking<A>& blocking) {
  constexpr int left = OpB == operand::as_is ? Eigen::ColMajor : Eigen::RowMajor;
  constexpr int right = OpA == operand::as_is ? Eigen::ColMajor : Eigen::RowMajor;
  Eigen::internal::general_matrix_matrix_product<
      Eigen::Index,
      A,
      left,
      false,
      A,
      right,
      false,
      Eigen::ColMajor,
      1>::run(n, m, k, b.data, b.stride, a.data, a.stride, c.data, 1, c.stride, A{1}, blocking);
}

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
  detail::tile_blocking<real> blocking{packed_b, packed_a};
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
        detail::multiply_tile<OpA, OpB, real>(
            rows,
            columns,
            depth,
            detail::operand_tile<OpA, real, a_type>({a.data, a.stride}, i, l, rows, depth, cast_a),
            detail::operand_tile<OpB, real, b_type>(
                {b.data, b.stride}, l, j, depth, columns, cast_b),
            sum,
            blocking);
      }
      detail::finish_tile(rows, columns, sum, bias == nullptr ? nullptr : bias + j, result);
    }
  }
}

}  // namespace transformer
