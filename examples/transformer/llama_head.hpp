// SPDX-License-Identifier: Apache-2.0
#pragma once
// LLaMA's last norm, vocabulary projection and loss over raw pointers, with the sizes of what a
// caller provides.

#include "examples/transformer/rms_norm.hpp"
#include "examples/transformer/tensor_sizes.hpp"
#include "examples/transformer/vocabulary_loss.hpp"

#include <array>

namespace transformer {

struct llama_head_shape {
  vocabulary_loss_shape loss{};
  double epsilon = 1e-6;

  constexpr length rows() const { return loss.rows(); }
};

/// P = T const: weights; P = T: gradients. lm_head [vocabulary, channels] may be the embedding.
template <class P>
struct llama_head_parameters {
  P* norm;
  P* lm_head;
};

/// In the order of `llama_head_sizes::saved`.
template <class T>
struct llama_head_saved {
  T* norm;
  accumulator_t<T>* norm_rstd;
  accumulator_t<T>* log_sums;
};

struct llama_head_sizes {
  std::array<tensor_size, 3> saved;
  tensor_size temporary;  // gradient of norm during backward
  std::array<operator_size, 2> forward;
  std::array<operator_size, 2> backward;
};

template <class T>
constexpr llama_head_sizes make_llama_head_sizes(llama_head_shape const& s) {
  length const n = s.rows();
  return {
      .saved = {tensor_size{"norm", element_kind::value, n * s.loss.channels},
                {"norm_rstd", element_kind::accumulator, n},
                {"log_sums", element_kind::accumulator, n}},
      .temporary = {"dnorm", element_kind::accumulator, n * s.loss.channels},
      .forward = {operator_size{"norm", 0}, {"loss", vocabulary_loss_forward_workspace<T>(s.loss)}},
      .backward = {operator_size{"loss", vocabulary_loss_backward_workspace<T>(s.loss)},
                   {"norm", 0}}};
}

/// Writes `saved` and losses[samples]; targets as in `vocabulary_loss_forward`, `op` as in
/// `gpt2_block_forward`.
template <class T, class Op>
void llama_head_forward(llama_head_shape const& s,
                        T const* x,
                        std::int32_t const* targets,
                        llama_head_parameters<T const> const& w,
                        llama_head_saved<T> const& a,
                        accumulator_t<T>* losses,
                        Op& op) {
  auto const sizes = make_llama_head_sizes<T>(s);
  op(sizes.forward[0].name, sizes.forward[0].workspace);
  rms_norm_forward(s.rows(),
                   s.loss.channels,
                   x,
                   w.norm,
                   static_cast<accumulator_t<T>>(s.epsilon),
                   a.norm,
                   a.norm_rstd);
  vocabulary_loss_forward(s.loss,
                          a.norm,
                          w.lm_head,
                          targets,
                          a.log_sums,
                          losses,
                          op(sizes.forward[1].name, sizes.forward[1].workspace));
}

/// Overwrites dx and all gradients; `scale` is the loss's weight, once. `dnorm` is the temporary.
template <class T, class Op>
void llama_head_backward(llama_head_shape const& s,
                         T const* x,
                         std::int32_t const* targets,
                         llama_head_parameters<T const> const& w,
                         llama_head_saved<T> const& a,
                         accumulator_t<T> scale,
                         T* dx,
                         llama_head_parameters<T> const& g,
                         accumulator_t<T>* dnorm,
                         Op& op) {
  auto const sizes = make_llama_head_sizes<T>(s);
  vocabulary_loss_backward(s.loss,
                           a.norm,
                           w.lm_head,
                           targets,
                           a.log_sums,
                           scale,
                           dnorm,
                           g.lm_head,
                           op(sizes.backward[0].name, sizes.backward[0].workspace));
  op(sizes.backward[1].name, sizes.backward[1].workspace);
  rms_norm_backward(s.rows(),
                    s.loss.channels,
                    x,
                    w.norm,
                    a.norm_rstd,
                    dnorm,
                    static_cast<T const*>(nullptr),
                    dx,
                    g.norm);
}

}  // namespace transformer
