// SPDX-License-Identifier: Apache-2.0
#pragma once
// Projection to the vocabulary and loss. Logits exist a slice of the vocabulary at a time, in the
// accumulator type: backward computes them again instead of keeping [rows, vocabulary].

#include "examples/transformer/cross_entropy.hpp"
#include "examples/transformer/gemm.hpp"

namespace transformer {

struct vocabulary_loss_shape {
  length samples = 0;
  length tokens = 0;
  length channels = 0;
  length vocabulary = 0;

  static constexpr length slice = 4 * gemm_tile::n;  // of the vocabulary

  constexpr length rows() const { return samples * tokens; }
  constexpr length widest() const { return std::min(vocabulary, slice); }
};

template <class T>
constexpr length vocabulary_loss_forward_workspace(vocabulary_loss_shape const& s) {
  length const n = s.rows();
  return 3 * aligned(n) + aligned(n * s.widest()) +
         gemm_workspace<T, T, accumulator_t<T>>(n, s.widest(), s.channels);
}

template <class T>
constexpr length vocabulary_loss_backward_workspace(vocabulary_loss_shape const& s) {
  using real = accumulator_t<T>;
  length const n = s.rows();
  length const c = s.channels;
  length const v = s.widest();
  return aligned(n * v) + std::max({gemm_workspace<T, T, real>(n, v, c),
                                    gemm_workspace<real, T, real>(n, c, v),
                                    gemm_workspace<real, T, T>(v, c, n)});
}

namespace detail {

/// body(first, count) over slices of the vocabulary.
template <class Body>
void for_slices(vocabulary_loss_shape const& s, Body const& body) {
  for (length first = 0; first < s.vocabulary; first += vocabulary_loss_shape::slice) {
    body(first, std::min(s.vocabulary - first, vocabulary_loss_shape::slice));
  }
}

/// logits[rows, count] of one slice.
template <class T, class A>
void slice_logits(vocabulary_loss_shape const& s,
                  length first,
                  length count,
                  T const* x,
                  T const* weight,
                  A* logits,
                  A* workspace) {
  gemm<operand::as_is, operand::transposed>(s.rows(),
                                            count,
                                            s.channels,
                                            matrix{x, s.channels},
                                            matrix{weight + first * s.channels, s.channels},
                                            matrix{logits, count},
                                            static_cast<A const*>(nullptr),
                                            workspace);
}

}  // namespace detail

/// From x[rows, channels] and weight[vocabulary, channels] to losses[samples], each the sum over a
/// sample's targets in token order. Targets [rows] below 0 are ignored. Keeps log_sums[rows].
template <class T>
void vocabulary_loss_forward(vocabulary_loss_shape const& s,
                             T const* x,
                             T const* weight,
                             std::int32_t const* targets,
                             accumulator_t<T>* log_sums,
                             accumulator_t<T>* losses,
                             accumulator_t<T>* workspace) {
  using real = accumulator_t<T>;
  length const n = s.rows();
  cross_entropy_rows<real> const state{
      workspace, workspace + aligned(n), workspace + 2 * aligned(n)};
  real* const logits = workspace + 3 * aligned(n);
  real* const inner = logits + aligned(n * s.widest());
  cross_entropy_begin(n, state);
  detail::for_slices(s, [&](length first, length count) {
    detail::slice_logits(s, first, count, x, weight, logits, inner);
    cross_entropy_add(n, first, count, logits, targets, state);
  });
  cross_entropy_finish(s.samples, s.tokens, targets, state, log_sums, losses);
}

/// Overwrites dx, in accumulators, and dweight; `scale` is the loss's weight, once.
template <class T>
void vocabulary_loss_backward(vocabulary_loss_shape const& s,
                              T const* x,
                              T const* weight,
                              std::int32_t const* targets,
                              accumulator_t<T> const* log_sums,
                              accumulator_t<T> scale,
                              accumulator_t<T>* dx,
                              T* dweight,
                              accumulator_t<T>* workspace) {
  using real = accumulator_t<T>;
  length const n = s.rows();
  length const c = s.channels;
  real* const logits = workspace;
  real* const inner = logits + aligned(n * s.widest());
  detail::for_slices(s, [&](length first, length count) {
    detail::slice_logits(s, first, count, x, weight, logits, inner);
    cross_entropy_backward(n, first, count, logits, targets, log_sums, scale, logits);
    gemm<operand::as_is, operand::as_is>(n,
                                         c,
                                         count,
                                         matrix{logits, count},
                                         matrix{weight + first * c, c},
                                         matrix{dx, c},
                                         static_cast<real const*>(nullptr),
                                         inner,
                                         first == 0 ? target::overwrite : target::add);
    gemm<operand::transposed, operand::as_is>(count,
                                              c,
                                              n,
                                              matrix{logits, count},
                                              matrix{x, c},
                                              matrix{dweight + first * c, c},
                                              static_cast<T const*>(nullptr),
                                              inner);
  });
}

}  // namespace transformer
