// SPDX-License-Identifier: Apache-2.0
#pragma once
// One LLaMA block over raw pointers: forward, rebuild of what a save level dropped, backward.
// Nothing here allocates; an adapter maps its tensors to the structs and hands out workspaces.

#include "examples/transformer/attention.hpp"
#include "examples/transformer/linear.hpp"
#include "examples/transformer/llama_block_types.hpp"
#include "examples/transformer/rms_norm.hpp"
#include "examples/transformer/rope.hpp"
#include "examples/transformer/swiglu.hpp"

namespace transformer {

namespace detail {

/// Queries, keys and values side by side, each by a weight of its own; then turned.
template <class T, class Op>
void llama_qkv_forward(llama_block_shape const& s,
                       llama_block_parameters<T const> const& w,
                       llama_block_saved<T> const& a,
                       llama_block_sizes const& sizes,
                       Op& op) {
  T const* const no_bias = nullptr;
  length const packed = s.attention.packed();
  length const kv = s.key_channels();
  auto* const room = op(sizes.forward[1].name, sizes.forward[1].workspace);
  auto const project = [&](T const* weight, length outputs, length at) {
    linear_forward(s.rows(),
                   outputs,
                   s.channels,
                   static_cast<T const*>(a.norm_1),
                   weight,
                   no_bias,
                   matrix{a.qkv + at, packed},
                   room);
  };
  project(w.q, s.attention.channels, 0);
  project(w.k, kv, s.attention.channels);
  project(w.v, kv, s.attention.channels + kv);
  rope_forward(s.attention, s.theta, a.qkv, op(sizes.forward[2].name, sizes.forward[2].workspace));
}

/// From dqkv in `t.hidden` to the gradients of the three weights, and dnorm_1 in `t.norms`.
template <class T, class Op>
void llama_qkv_backward(llama_block_shape const& s,
                        llama_block_parameters<T const> const& w,
                        llama_block_saved<T> const& a,
                        llama_block_parameters<T> const& g,
                        llama_block_temporary<T> const& t,
                        llama_block_sizes const& sizes,
                        Op& op) {
  length const packed = s.attention.packed();
  length const kv = s.key_channels();
  rope_backward(
      s.attention, s.theta, t.hidden, op(sizes.backward[6].name, sizes.backward[6].workspace));
  auto* const room = op(sizes.backward[7].name, sizes.backward[7].workspace);
  auto const part = [&](T const* weight, T* gradient, length outputs, length at) {
    linear_part_backward(s.rows(),
                         outputs,
                         s.channels,
                         static_cast<T const*>(a.norm_1),
                         weight,
                         matrix<T const>{t.hidden + at, packed},
                         at == 0 ? target::overwrite : target::add,
                         t.norms,
                         gradient,
                         room);
  };
  part(w.q, g.q, s.attention.channels, 0);
  part(w.k, g.k, kv, s.attention.channels);
  part(w.v, g.v, kv, s.attention.channels + kv);
}

/// The two products of norm_2.
template <class T, class Op>
void llama_gate_up(llama_block_shape const& s,
                   llama_block_parameters<T const> const& w,
                   llama_block_saved<T> const& a,
                   llama_block_sizes const& sizes,
                   Op& op) {
  length const n = s.rows();
  T const* const no_bias = nullptr;
  auto* const room = op(sizes.forward[6].name, sizes.forward[6].workspace);
  linear_forward(n, s.inner, s.channels, a.norm_2, w.gate, no_bias, a.gate, room);
  linear_forward(n, s.inner, s.channels, a.norm_2, w.up, no_bias, a.up, room);
}

/// silu(gate) up.
template <class T, class Op>
void llama_swiglu(llama_block_shape const& s,
                  llama_block_saved<T> const& a,
                  llama_block_sizes const& sizes,
                  Op& op) {
  op(sizes.forward[7].name, sizes.forward[7].workspace);
  swiglu_forward(s.rows() * s.inner, a.gate, a.up, a.swiglu);
}

/// y = residual + down(silu(gate) up) of norm_2.
template <class T, class Op>
void llama_mlp_forward(llama_block_shape const& s,
                       llama_block_parameters<T const> const& w,
                       llama_block_saved<T> const& a,
                       T* y,
                       llama_block_sizes const& sizes,
                       Op& op) {
  length const n = s.rows();
  T const* const no_bias = nullptr;
  llama_gate_up(s, w, a, sizes, op);
  llama_swiglu(s, a, sizes, op);
  auto* const room = op(sizes.forward[8].name, sizes.forward[8].workspace);
  linear_forward(n, s.channels, s.inner, a.swiglu, w.down, no_bias, y, room);
  residual_forward(s.attention.samples, s.attention.tokens, s.channels, a.residual, y, {}, y);
}

/// From dy to the gradients of the three weights, and dnorm_2 in `t.norms`.
template <class T, class Op>
void llama_mlp_backward(llama_block_shape const& s,
                        llama_block_parameters<T const> const& w,
                        llama_block_saved<T> const& a,
                        T const* dy,
                        llama_block_parameters<T> const& g,
                        llama_block_temporary<T> const& t,
                        llama_block_sizes const& sizes,
                        Op& op) {
  length const n = s.rows();
  T* const no_bias = nullptr;
  auto* room = op(sizes.backward[0].name, sizes.backward[0].workspace);
  linear_backward(n, s.channels, s.inner, a.swiglu, w.down, dy, t.hidden, g.down, no_bias, room);
  op(sizes.backward[1].name, sizes.backward[1].workspace);
  swiglu_backward(n * s.inner, a.gate, a.up, t.hidden, t.side, t.hidden);
  room = op(sizes.backward[2].name, sizes.backward[2].workspace);
  auto const part = [&](T const* weight, T const* slopes, target how, T* gradient) {
    linear_part_backward(n,
                         s.inner,
                         s.channels,
                         static_cast<T const*>(a.norm_2),
                         weight,
                         matrix{slopes, s.inner},
                         how,
                         t.norms,
                         gradient,
                         room);
  };
  part(w.gate, t.side, target::overwrite, g.gate);
  part(w.up, t.hidden, target::add, g.up);
}

}  // namespace detail

/// Writes y and everything in `saved`. Dropout, where there is any, is on the attention's
/// probabilities, as in the published model. `op` as in `gpt2_block_forward`.
template <class T, class Op>
void llama_block_forward(llama_block_shape const& s,
                         T const* x,
                         llama_block_parameters<T const> const& w,
                         dropout_key const& dropout,
                         llama_block_saved<T> const& a,
                         T* y,
                         Op& op) {
  using real = accumulator_t<T>;
  auto const sizes = make_llama_block_sizes<T>(s);
  auto const begin = [&](std::size_t i) {
    return op(sizes.forward[i].name, sizes.forward[i].workspace);
  };
  length const n = s.rows();
  length const c = s.channels;
  auto const epsilon = static_cast<real>(s.epsilon);
  begin(0);
  rms_norm_forward(n, c, x, w.norm_1, epsilon, a.norm_1, a.norm_1_rstd);
  detail::llama_qkv_forward(s, w, a, sizes, op);
  attention_forward(s.attention, a.qkv, dropout, a.probabilities, a.attention, begin(3));
  T const* const no_bias = nullptr;
  linear_forward(n, c, s.attention.channels, a.attention, w.o, no_bias, a.residual, begin(4));
  residual_forward(s.attention.samples, s.attention.tokens, c, x, a.residual, {}, a.residual);
  begin(5);
  rms_norm_forward(n, c, a.residual, w.norm_2, epsilon, a.norm_2, a.norm_2_rstd);
  detail::llama_mlp_forward(s, w, a, y, sizes, op);
}

/// Writes what `level` dropped, with the bits of the forward pass, and nothing else.
template <class T, class Op>
void llama_block_rebuild(llama_block_shape const& s,
                         T const* x,
                         llama_block_parameters<T const> const& w,
                         dropout_key const& dropout,
                         llama_block_saved<T> const& a,
                         llama_block_level level,
                         Op& op) {
  auto const sizes = make_llama_block_sizes<T>(s);
  auto const begin = [&](std::size_t i) {
    return op(sizes.forward[i].name, sizes.forward[i].workspace);
  };
  bool const products = level == llama_block_level::attention;
  begin(0);
  rms_norm_apply(s.rows(), s.channels, x, w.norm_1, a.norm_1_rstd, a.norm_1);
  if (products) {
    T* const kept = nullptr;
    detail::llama_qkv_forward(s, w, a, sizes, op);
    attention_forward(s.attention, a.qkv, dropout, a.probabilities, kept, begin(3));
  }
  begin(5);
  rms_norm_apply(s.rows(), s.channels, a.residual, w.norm_2, a.norm_2_rstd, a.norm_2);
  if (products) {
    detail::llama_gate_up(s, w, a, sizes, op);
  }
  detail::llama_swiglu(s, a, sizes, op);
}

/// Overwrites dx and all gradients. x is the input that forward read, dy the gradient of its y.
template <class T, class Op>
void llama_block_backward(llama_block_shape const& s,
                          T const* x,
                          llama_block_parameters<T const> const& w,
                          dropout_key const& dropout,
                          llama_block_saved<T> const& a,
                          T const* dy,
                          T* dx,
                          llama_block_parameters<T> const& g,
                          llama_block_temporary<T> const& t,
                          Op& op) {
  auto const sizes = make_llama_block_sizes<T>(s);
  auto const begin = [&](std::size_t i) {
    return op(sizes.backward[i].name, sizes.backward[i].workspace);
  };
  length const n = s.rows();
  length const c = s.channels;
  detail::llama_mlp_backward(s, w, a, dy, g, t, sizes, op);
  begin(3);
  rms_norm_backward(n, c, a.residual, w.norm_2, a.norm_2_rstd, t.norms, dy, t.residual, g.norm_2);
  auto* const room = begin(4);
  T* const no_bias = nullptr;
  linear_backward(
      n, c, s.attention.channels, a.attention, w.o, t.residual, t.side, g.o, no_bias, room);
  attention_backward(s.attention, a.qkv, a.probabilities, t.side, dropout, t.hidden, begin(5));
  detail::llama_qkv_backward(s, w, a, g, t, sizes, op);
  begin(8);
  rms_norm_backward(n, c, x, w.norm_1, a.norm_1_rstd, t.norms, t.residual, dx, g.norm_1);
}

}  // namespace transformer
