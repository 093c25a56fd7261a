// SPDX-License-Identifier: Apache-2.0
// Eigen's packed kernel, in tiles of fixed size: its own driver allocates, sizes its blocks by the
// caches it finds, and leaves small products to loops that peel by address.

#include "examples/transformer/gemm_kernel.hpp"

#include <Eigen/Core>

namespace transformer::detail {

namespace {

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

/// Eigen wants the result by columns, hence c' += b' a'.
template <int Left, int Right, class A>
void multiply_ordered(length m, length n, length k, tile_operands<A> const& from, matrix<A> c) {
  tile_blocking<A> blocking{from.packed_b, from.packed_a};
  Eigen::internal::general_matrix_matrix_product<Eigen::Index,
                                                 A,
                                                 Left,
                                                 false,
                                                 A,
                                                 Right,
                                                 false,
                                                 Eigen::ColMajor,
                                                 1>::run(n,
                                                         m,
                                                         k,
                                                         from.b.data,
                                                         from.b.stride,
                                                         from.a.data,
                                                         from.a.stride,
                                                         c.data,
                                                         1,
                                                         c.stride,
                                                         A{1},
                                                         blocking);
}

template <int Left, class A>
void multiply_left(length m, length n, length k, tile_operands<A> const& from, matrix<A> c) {
  if (from.op_a == operand::as_is) {
    multiply_ordered<Left, Eigen::ColMajor>(m, n, k, from, c);
  } else {
    multiply_ordered<Left, Eigen::RowMajor>(m, n, k, from, c);
  }
}

template <class A>
void multiply(length m, length n, length k, tile_operands<A> const& from, matrix<A> c) {
  if (from.op_b == operand::as_is) {
    multiply_left<Eigen::ColMajor>(m, n, k, from, c);
  } else {
    multiply_left<Eigen::RowMajor>(m, n, k, from, c);
  }
}

}  // namespace

void multiply_tile(
    length m, length n, length k, tile_operands<float> const& from, matrix<float> c) {
  multiply(m, n, k, from, c);
}

void multiply_tile(
    length m, length n, length k, tile_operands<double> const& from, matrix<double> c) {
  multiply(m, n, k, from, c);
}

}  // namespace transformer::detail
