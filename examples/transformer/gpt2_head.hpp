// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2's last norm, vocabulary projection and loss. Logits exist a slice of the vocabulary at a
// time, in the accumulator type: backward computes them again instead of keeping [rows, vocabulary].

#include "examples/transformer/cross_entropy.hpp"
#include "examples/transformer/gpt2_block_types.hpp"
#include "examples/transformer/layer_norm.hpp"

namespace transformer {

struct gpt2_head_shape {
  length samples = 0;
  length tokens = 0;
  length channels = 0;
  length vocabulary = 0;
  double epsilon = 1e-5;

  static constexpr length slice = 4 * gemm_tile::n;  // of the vocabulary

  constexpr length rows() const { return samples * tokens; }
  constexpr length widest() const { return std::min(vocabulary, slice); }
};

/// P = T const: weights; P = T: gradients. lm_head_weight [vocabulary, channels] may be the token
/// embedding.
template <class P>
struct gpt2_head_parameters {
  P* ln_f_weight;
  P* ln_f_bias;
  P* lm_head_weight;
};

/// In the order of `gpt2_head_sizes::saved`.
template <class T>
struct gpt2_head_saved {
  T* ln_f;
  accumulator_t<T>* ln_f_mean;
  accumulator_t<T>* ln_f_rstd;
  accumulator_t<T>* log_sums;
};

struct gpt2_head_sizes {
  std::array<tensor_size, 4> saved;
  tensor_size temporary;  // gradient of ln_f during backward
  std::array<operator_size, 2> forward;
  std::array<operator_size, 2> backward;
};

template <class T>
constexpr gpt2_head_sizes make_gpt2_head_sizes(gpt2_head_shape const& s) {
  using real = accumulator_t<T>;
  length const n = s.rows();
  length const c = s.channels;
  length const v = s.widest();
  length const project = gemm_workspace<T, T, real>(n, v, c);
  return {
      .saved = {tensor_size{"ln_f", element_kind::value, n * c},
                {"ln_f_mean", element_kind::accumulator, n},
                {"ln_f_rstd", element_kind::accumulator, n},
                {"log_sums", element_kind::accumulator, n}},
      .temporary = {"dln_f", element_kind::accumulator, n * c},
      .forward = {operator_size{"ln_f", 0}, {"loss", 3 * aligned(n) + aligned(n * v) + project}},
      .backward = {operator_size{"loss",
                                 aligned(n * v) + std::max({project,
                                                            gemm_workspace<real, T, real>(n, c, v),
                                                            gemm_workspace<real, T, T>(v, c, n)})},
                   {"ln_f", 0}}};
}

namespace detail {

/// body(first, count) over slices of the vocabulary.
template <class Body>
void for_slices(gpt2_head_shape const& s, Body const& body) {
  for (length first = 0; first < s.vocabulary; first += gpt2_head_shape::slice) {
    body(first, std::min(s.vocabulary - first, gpt2_head_shape::slice));
  }
}

/// logits[rows, count] of one slice.
template <class T, class A>
void slice_logits(gpt2_head_shape const& s,
                  length first,
                  length count,
                  T const* ln_f,
                  T const* weight,
                  A* logits,
                  A* workspace) {
  gemm<operand::as_is, operand::transposed>(s.rows(),
                                            count,
                                            s.channels,
                                            matrix{ln_f, s.channels},
                                            matrix{weight + first * s.channels, s.channels},
                                            matrix{logits, count},
                                            static_cast<A const*>(nullptr),
                                            workspace);
}

}  // namespace detail

/// Writes `saved` and losses[samples], each the sum over a sample's targets in token order. Targets
/// [rows] below 0 are ignored. `op` as in `gpt2_block_forward`.
template <class T, class Op>
void gpt2_head_forward(gpt2_head_shape const& s,
                       T const* x,
                       std::int32_t const* targets,
                       gpt2_head_parameters<T const> const& w,
                       gpt2_head_saved<T> const& saved,
                       accumulator_t<T>* losses,
                       Op& op) {
  using real = accumulator_t<T>;
  auto const sizes = make_gpt2_head_sizes<T>(s);
  length const n = s.rows();
  op(sizes.forward[0].name, sizes.forward[0].workspace);
  layer_norm_forward(n,
                     s.channels,
                     x,
                     w.ln_f_weight,
                     w.ln_f_bias,
                     static_cast<real>(s.epsilon),
                     saved.ln_f,
                     saved.ln_f_mean,
                     saved.ln_f_rstd);
  real* const room = op(sizes.forward[1].name, sizes.forward[1].workspace);
  cross_entropy_rows<real> const state{room, room + aligned(n), room + 2 * aligned(n)};
  real* const logits = room + 3 * aligned(n);
  real* const inner = logits + aligned(n * s.widest());
  cross_entropy_begin(n, state);
  detail::for_slices(s, [&](length first, length count) {
    detail::slice_logits(s, first, count, saved.ln_f, w.lm_head_weight, logits, inner);
    cross_entropy_add(n, first, count, logits, targets, state);
  });
  cross_entropy_finish(s.samples, s.tokens, targets, state, saved.log_sums, losses);
}

/// Overwrites dx and all gradients; `scale` is the loss's weight, once. `dln_f` is the temporary.
template <class T, class Op>
void gpt2_head_backward(gpt2_head_shape const& s,
                        T const* x,
                        std::int32_t const* targets,
                        gpt2_head_parameters<T const> const& w,
                        gpt2_head_saved<T> const& saved,
                        accumulator_t<T> scale,
                        T* dx,
                        gpt2_head_parameters<T> const& g,
                        accumulator_t<T>* dln_f,
                        Op& op) {
  using real = accumulator_t<T>;
  auto const sizes = make_gpt2_head_sizes<T>(s);
  length const n = s.rows();
  length const c = s.channels;
  real* const logits = op(sizes.backward[0].name, sizes.backward[0].workspace);
  real* const inner = logits + aligned(n * s.widest());
  detail::for_slices(s, [&](length first, length count) {
    detail::slice_logits(s, first, count, saved.ln_f, w.lm_head_weight, logits, inner);
    cross_entropy_backward(n, first, count, logits, targets, saved.log_sums, scale, logits);
    gemm<operand::as_is, operand::as_is>(n,
                                         c,
                                         count,
                                         matrix{logits, count},
                                         matrix{w.lm_head_weight + first * c, c},
                                         matrix{dln_f, c},
                                         static_cast<real const*>(nullptr),
                                         inner,
                                         first == 0 ? target::overwrite : target::add);
    gemm<operand::transposed, operand::as_is>(count,
                                              c,
                                              n,
                                              matrix{logits, count},
                                              matrix{saved.ln_f, c},
                                              matrix{g.lm_head_weight + first * c, c},
                                              static_cast<T const*>(nullptr),
                                              inner);
  });
  op(sizes.backward[1].name, sizes.backward[1].workspace);
  layer_norm_backward(n,
                      c,
                      x,
                      w.ln_f_weight,
                      saved.ln_f_mean,
                      saved.ln_f_rstd,
                      dln_f,
                      static_cast<T const*>(nullptr),
                      dx,
                      g.ln_f_weight,
                      g.ln_f_bias);
}

}  // namespace transformer
