// SPDX-License-Identifier: Apache-2.0
#pragma once
// One GPT-2 block over raw pointers: forward, rebuild of what a save level dropped, backward.
// Nothing here allocates; an adapter maps its tensors to the structs and hands out workspaces.

#include "examples/transformer/attention.hpp"
#include "examples/transformer/gelu.hpp"
#include "examples/transformer/gpt2_block_types.hpp"
#include "examples/transformer/layer_norm.hpp"
#include "examples/transformer/linear.hpp"

namespace transformer {

namespace detail {

/// The parts of the forward pass; each writes saved tensors from saved tensors.
template <class T, class Op>
struct gpt2_block_pass {
  gpt2_block_shape s;
  T const* x;
  gpt2_block_parameters<T const> w;
  gpt2_block_dropout dropout;
  gpt2_block_saved<T> a;
  gpt2_block_sizes sizes;
  Op* op;

  auto* begin(std::size_t i) const {
    return (*op)(sizes.forward[i].name, sizes.forward[i].workspace);
  }

  void ln_1(bool first) const {
    begin(0);
    norm(first, x, w.ln_1_weight, w.ln_1_bias, a.ln_1_mean, a.ln_1_rstd, a.ln_1);
  }
  void attention_inputs() const {
    linear_forward(s.rows(),
                   3 * s.channels(),
                   s.channels(),
                   a.ln_1,
                   w.attn_weight,
                   w.attn_bias,
                   a.qkv,
                   begin(1));
  }
  void attention(T* out) const {
    attention_forward(s.attention, a.qkv, dropout.attention, a.probabilities, out, begin(2));
  }
  void attention_projection() const {
    linear_forward(s.rows(),
                   s.channels(),
                   s.channels(),
                   a.attention,
                   w.attn_proj_weight,
                   w.attn_proj_bias,
                   a.residual,
                   begin(3));
    residual_forward(s.attention.samples,
                     s.attention.tokens,
                     s.channels(),
                     x,
                     a.residual,
                     dropout.attention_residual,
                     a.residual);
  }
  void ln_2(bool first) const {
    begin(4);
    norm(first, a.residual, w.ln_2_weight, w.ln_2_bias, a.ln_2_mean, a.ln_2_rstd, a.ln_2);
  }
  void fc() const {
    linear_forward(s.rows(), s.inner, s.channels(), a.ln_2, w.fc_weight, w.fc_bias, a.fc, begin(5));
  }
  void gelu() const {
    begin(6);
    gelu_forward(s.rows() * s.inner, a.fc, a.gelu);
  }
  void mlp_projection(T* y) const {
    linear_forward(
        s.rows(), s.channels(), s.inner, a.gelu, w.mlp_proj_weight, w.mlp_proj_bias, y, begin(7));
    residual_forward(s.attention.samples,
                     s.attention.tokens,
                     s.channels(),
                     a.residual,
                     y,
                     dropout.mlp_residual,
                     y);
  }

 private:
  void norm(bool first,
            T const* in,
            T const* weight,
            T const* bias,
            accumulator_t<T>* mean,
            accumulator_t<T>* rstd,
            T* out) const {
    if (first) {
      layer_norm_forward(s.rows(),
                         s.channels(),
                         in,
                         weight,
                         bias,
                         static_cast<accumulator_t<T>>(s.epsilon),
                         out,
                         mean,
                         rstd);
    } else {
      layer_norm_apply(s.rows(), s.channels(), in, weight, bias, mean, rstd, out);
    }
  }
};

template <class T, class Op>
gpt2_block_pass<T, Op> make_gpt2_block_pass(gpt2_block_shape const& s,
                                            T const* x,
                                            gpt2_block_parameters<T const> const& w,
                                            gpt2_block_dropout const& dropout,
                                            gpt2_block_saved<T> const& saved,
                                            Op& op) {
  return {s, x, w, dropout, saved, make_gpt2_block_sizes<T>(s, dropout.mlp_residual.on()), &op};
}

}  // namespace detail

/// Writes y and everything in `saved`. `op(name, elements)` begins an operator, ends the one before
/// and returns that operator's workspace of accumulators (any pointer for 0 elements).
template <class T, class Op>
void gpt2_block_forward(gpt2_block_shape const& s,
                        T const* x,
                        gpt2_block_parameters<T const> const& weights,
                        gpt2_block_dropout const& dropout,
                        gpt2_block_saved<T> const& saved,
                        T* y,
                        Op& op) {
  auto const pass = detail::make_gpt2_block_pass(s, x, weights, dropout, saved, op);
  pass.ln_1(true);
  pass.attention_inputs();
  pass.attention(saved.attention);
  pass.attention_projection();
  pass.ln_2(true);
  pass.fc();
  pass.gelu();
  pass.mlp_projection(y);
}

/// Writes what `level` dropped, with the bits of the forward pass, and nothing else.
template <class T, class Op>
void gpt2_block_rebuild(gpt2_block_shape const& s,
                        T const* x,
                        gpt2_block_parameters<T const> const& weights,
                        gpt2_block_dropout const& dropout,
                        gpt2_block_saved<T> const& saved,
                        gpt2_block_level level,
                        Op& op) {
  bool const all = level == gpt2_block_level::input;
  auto const pass = detail::make_gpt2_block_pass(s, x, weights, dropout, saved, op);
  pass.ln_1(all);
  if (level != gpt2_block_level::cheap) {
    pass.attention_inputs();
    pass.attention(all ? saved.attention : nullptr);
  }
  if (all) {
    pass.attention_projection();
  }
  pass.ln_2(all);
  if (level != gpt2_block_level::cheap) {
    pass.fc();
  }
  pass.gelu();
}

/// Overwrites dx and all gradients. x is the input that forward read, dy the gradient of its y.
template <class T, class Op>
void gpt2_block_backward(gpt2_block_shape const& s,
                         T const* x,
                         gpt2_block_parameters<T const> const& w,
                         gpt2_block_dropout const& dropout,
                         gpt2_block_saved<T> const& a,
                         T const* dy,
                         T* dx,
                         gpt2_block_parameters<T> const& g,
                         gpt2_block_temporary<T> const& t,
                         Op& op) {
  length const n = s.rows();
  length const c = s.channels();
  length const f = s.inner;
  auto const sizes = make_gpt2_block_sizes<T>(s, dropout.mlp_residual.on());
  auto const begin = [&](std::size_t i) {
    return op(sizes.backward[i].name, sizes.backward[i].workspace);
  };
  auto const undrop = [&](T const* gradient, dropout_key const& key) {
    if (!key.on()) {
      return gradient;
    }
    dropout_backward(s.attention.samples, s.attention.tokens, c, gradient, key, t.dropped);
    return static_cast<T const*>(t.dropped);
  };
  auto* workspace = begin(0);
  T const* dbranch = undrop(dy, dropout.mlp_residual);
  linear_backward(n,
                  c,
                  f,
                  a.gelu,
                  w.mlp_proj_weight,
                  dbranch,
                  t.hidden,
                  g.mlp_proj_weight,
                  g.mlp_proj_bias,
                  workspace);
  begin(1);
  gelu_backward(n * f, a.fc, t.hidden, t.hidden);
  workspace = begin(2);
  linear_backward(
      n, f, c, a.ln_2, w.fc_weight, t.hidden, t.branch, g.fc_weight, g.fc_bias, workspace);
  begin(3);
  layer_norm_backward(n,
                      c,
                      a.residual,
                      w.ln_2_weight,
                      a.ln_2_mean,
                      a.ln_2_rstd,
                      t.branch,
                      dy,
                      t.residual,
                      g.ln_2_weight,
                      g.ln_2_bias);
  workspace = begin(4);
  dbranch = undrop(t.residual, dropout.attention_residual);
  linear_backward(n,
                  c,
                  c,
                  a.attention,
                  w.attn_proj_weight,
                  dbranch,
                  t.branch,
                  g.attn_proj_weight,
                  g.attn_proj_bias,
                  workspace);
  attention_backward(
      s.attention, a.qkv, a.probabilities, t.branch, dropout.attention, t.hidden, begin(5));
  workspace = begin(6);
  linear_backward(n,
                  3 * c,
                  c,
                  a.ln_1,
                  w.attn_weight,
                  t.hidden,
                  t.branch,
                  g.attn_weight,
                  g.attn_bias,
                  workspace);
  begin(7);
  layer_norm_backward(n,
                      c,
                      x,
                      w.ln_1_weight,
                      a.ln_1_mean,
                      a.ln_1_rstd,
                      t.branch,
                      t.residual,
                      dx,
                      g.ln_1_weight,
                      g.ln_1_bias);
}

}  // namespace transformer
