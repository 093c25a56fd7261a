// SPDX-License-Identifier: Apache-2.0
#pragma once
// GPT-2's last norm, vocabulary projection and loss over raw pointers, with the sizes of what a
// caller provides.

#include "examples/transformer/layer_norm.hpp"
#include "examples/transformer/tensor_sizes.hpp"
#include "examples/transformer/vocabulary_loss.hpp"

#include <array>

namespace transformer {

struct gpt2_head_shape {
  length samples = 0;
  length tokens = 0;
  length channels = 0;
  length vocabulary = 0;
  double epsilon = 1e-5;

  constexpr length rows() const { return samples * tokens; }
  constexpr vocabulary_loss_shape loss() const { return {samples, tokens, channels, vocabulary}; }
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
  length const n = s.rows();
  return {.saved = {tensor_size{"ln_f", element_kind::value, n * s.channels},
                    {"ln_f_mean", element_kind::accumulator, n},
                    {"ln_f_rstd", element_kind::accumulator, n},
                    {"log_sums", element_kind::accumulator, n}},
          .temporary = {"dln_f", element_kind::accumulator, n * s.channels},
          .forward = {operator_size{"ln_f", 0},
                      {"loss", vocabulary_loss_forward_workspace<T>(s.loss())}},
          .backward = {operator_size{"loss", vocabulary_loss_backward_workspace<T>(s.loss())},
                       {"ln_f", 0}}};
}

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
  vocabulary_loss_forward(s.loss(),
                          saved.ln_f,
                          w.lm_head_weight,
                          targets,
                          saved.log_sums,
                          losses,
                          op(sizes.forward[1].name, sizes.forward[1].workspace));
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
  auto const sizes = make_gpt2_head_sizes<T>(s);
  length const n = s.rows();
  length const c = s.channels;
  vocabulary_loss_backward(s.loss(),
                           saved.ln_f,
                           w.lm_head_weight,
                           targets,
                           saved.log_sums,
                           scale,
                           dln_f,
                           g.lm_head_weight,
                           op(sizes.backward[0].name, sizes.backward[0].workspace));
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
