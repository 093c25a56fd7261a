// SPDX-License-Identifier: Apache-2.0
#pragma once
// y = x w' + bias and its gradients. Weights are [outputs, inputs], as most checkpoints have them
// (GPT-2's own are transposed).

#include "examples/transformer/gemm.hpp"

namespace transformer {

/// Accumulators that `linear_forward` of x[m, k] and w[n, k] needs.
template <class T>
constexpr length linear_forward_workspace(length m, length n, length k) {
  return gemm_workspace<T, T, T>(m, n, k);
}

template <class T>
constexpr length linear_backward_workspace(length m, length n, length k) {
  return std::max(gemm_workspace<T, T, T>(m, k, n), gemm_workspace<T, T, T>(n, k, m));
}

/// y[m, n] = x[m, k] w[n, k]' + bias[n]; no bias: null. Rows of y may lie apart.
template <class T>
void linear_forward(length m,
                    length n,
                    length k,
                    T const* x,
                    T const* w,
                    T const* bias,
                    matrix<T> y,
                    accumulator_t<T>* workspace) {
  gemm<operand::as_is, operand::transposed>(
      m, n, k, matrix{x, k}, matrix{w, k}, y, bias, workspace);
}

template <class T>
void linear_forward(length m,
                    length n,
                    length k,
                    T const* x,
                    T const* w,
                    T const* bias,
                    T* y,
                    accumulator_t<T>* workspace) {
  linear_forward(m, n, k, x, w, bias, matrix{y, n}, workspace);
}

/// Sum of the m rows of dy, in ascending order.
template <class T>
void bias_backward(length m, length n, T const* dy, T* dbias) {
  using real = accumulator_t<T>;
  sum_columns<real>(
      m,
      n,
      [&](length i, length j, length count) { return load(dy + i * n + j, count); },
      [&](length j, length count, pack<real> sum) { store(dbias + j, sum, count); });
}

/// Overwrites dx[m, k], dw[n, k] and dbias[n]; each may be null.
template <class T>
void linear_backward(length m,
                     length n,
                     length k,
                     T const* x,
                     T const* w,
                     T const* dy,
                     T* dx,
                     T* dw,
                     T* dbias,
                     accumulator_t<T>* workspace) {
  T const* const none = nullptr;
  if (dx != nullptr) {
    gemm<operand::as_is, operand::as_is>(
        m, k, n, matrix{dy, n}, matrix{w, k}, matrix{dx, k}, none, workspace);
  }
  if (dw != nullptr) {
    gemm<operand::transposed, operand::as_is>(
        n, k, m, matrix{dy, n}, matrix{x, k}, matrix{dw, k}, none, workspace);
  }
  if (dbias != nullptr) {
    bias_backward(m, n, dy, dbias);
  }
}

/// One of several layers without bias that read the same x: overwrites dw[n, k], and overwrites
/// dx[m, k] or adds to it, in accumulators, so that the sum over the layers is rounded once.
template <class T>
void linear_part_backward(length m,
                          length n,
                          length k,
                          T const* x,
                          T const* w,
                          matrix<T const> dy,
                          target how,
                          accumulator_t<T>* dx,
                          T* dw,
                          accumulator_t<T>* workspace) {
  gemm<operand::as_is, operand::as_is>(m,
                                       k,
                                       n,
                                       dy,
                                       matrix{w, k},
                                       matrix{dx, k},
                                       static_cast<accumulator_t<T> const*>(nullptr),
                                       workspace,
                                       how);
  gemm<operand::transposed, operand::as_is>(
      n, k, m, dy, matrix{x, k}, matrix{dw, k}, static_cast<T const*>(nullptr), workspace);
}

}  // namespace transformer
