// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one GPT-2 block works on: shape, parameters, saved and temporary tensors as raw pointers, and
// the size of each, so that a caller can provide the memory.

#include "examples/transformer/attention.hpp"
#include "examples/transformer/linear.hpp"
#include "examples/transformer/tensor_sizes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace transformer {

struct gpt2_block_shape {
  attention_shape attention{};
  length inner = 0;  // channels of the MLP, 4 x channels as a rule
  double epsilon = 1e-5;

  constexpr length rows() const { return attention.rows(); }
  constexpr length channels() const { return attention.channels; }
};

constexpr gpt2_block_shape make_gpt2_block_shape(length samples,
                                                 length tokens,
                                                 length channels,
                                                 length heads) {
  return {.attention = {samples, tokens, channels, heads}, .inner = 4 * channels};
}

/// P = T const: weights; P = T: gradients. Named as in the checkpoints; weights [outputs, inputs].
template <class P>
struct gpt2_block_parameters {
  P* ln_1_weight;
  P* ln_1_bias;
  P* attn_weight;  // [3 C, C]: queries, keys, values
  P* attn_bias;
  P* attn_proj_weight;
  P* attn_proj_bias;
  P* ln_2_weight;
  P* ln_2_bias;
  P* fc_weight;  // [inner, C]
  P* fc_bias;
  P* mlp_proj_weight;  // [C, inner]
  P* mlp_proj_bias;
};

/// What forward leaves for backward, in the order of `gpt2_block_sizes::saved`.
template <class T>
struct gpt2_block_saved {
  T* ln_1;
  accumulator_t<T>* ln_1_mean;
  accumulator_t<T>* ln_1_rstd;
  T* qkv;
  T* probabilities;
  T* attention;
  T* residual;  // x + dropout(projected attention)
  T* ln_2;
  accumulator_t<T>* ln_2_mean;
  accumulator_t<T>* ln_2_rstd;
  T* fc;
  T* gelu;
};

/// How much of what forward saved is there when the block is rebuilt.
enum class gpt2_block_level : std::uint8_t {
  cheap,      // all but ln_1, ln_2 and gelu, which cost no product
  attention,  // attention, residual and the norms' means and rstds only
  input       // nothing
};

/// In the order of `gpt2_block_sizes::saved`: at which level a tensor is first dropped.
inline constexpr std::array<gpt2_block_level, 12> gpt2_block_dropped{gpt2_block_level::cheap,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::attention,
                                                                     gpt2_block_level::attention,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::cheap,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::input,
                                                                     gpt2_block_level::attention,
                                                                     gpt2_block_level::cheap};

/// Live from the first to the last operator of backward, in the order of
/// `gpt2_block_sizes::temporary`.
template <class T>
struct gpt2_block_temporary {
  T* dropped;   // empty without residual dropout
  T* hidden;    // dgelu, dfc, then dqkv
  T* branch;    // dln_2, dattention, then dln_1
  T* residual;  // dresidual
};

struct gpt2_block_dropout {
  dropout_key attention{};
  dropout_key attention_residual{};
  dropout_key mlp_residual{};
};

/// Operators 0, 1 and 2 of the block and first sample that `at` names.
constexpr gpt2_block_dropout make_gpt2_block_dropout(random_key at,
                                                     double attention,
                                                     double residual) {
  auto const key = [&](std::uint32_t op, double probability) {
    random_key k = at;
    k.op = op;
    return dropout_key{.at = k, .probability = probability};
  };
  return {key(0, attention), key(1, residual), key(2, residual)};
}

struct gpt2_block_sizes {
  std::array<tensor_size, 12> saved;
  std::array<tensor_size, 4> temporary;
  std::array<operator_size, 8> forward;
  std::array<operator_size, 8> backward;
};

template <class T>
constexpr gpt2_block_sizes make_gpt2_block_sizes(gpt2_block_shape const& s, bool residual_dropout) {
  length const n = s.rows();
  length const c = s.channels();
  length const f = s.inner;
  auto const values = [](std::string_view name, length elements) {
    return tensor_size{name, element_kind::value, elements};
  };
  auto const sums = [](std::string_view name, length elements) {
    return tensor_size{name, element_kind::accumulator, elements};
  };
  return {.saved = {values("ln_1", n * c),
                    sums("ln_1_mean", n),
                    sums("ln_1_rstd", n),
                    values("qkv", 3 * n * c),
                    values("probabilities", s.attention.probabilities()),
                    values("attention", n * c),
                    values("residual", n * c),
                    values("ln_2", n * c),
                    sums("ln_2_mean", n),
                    sums("ln_2_rstd", n),
                    values("fc", n * f),
                    values("gelu", n * f)},
          .temporary = {values("dropped", residual_dropout ? n * c : 0),
                        values("hidden", n * std::max(f, 3 * c)),
                        values("branch", n * c),
                        values("dresidual", n * c)},
          .forward = {operator_size{"ln_1", 0},
                      {"attn", linear_forward_workspace<T>(n, 3 * c, c)},
                      {"attention", attention_forward_workspace<T>(s.attention)},
                      {"attn_proj", linear_forward_workspace<T>(n, c, c)},
                      {"ln_2", 0},
                      {"fc", linear_forward_workspace<T>(n, f, c)},
                      {"gelu", 0},
                      {"mlp_proj", linear_forward_workspace<T>(n, c, f)}},
          .backward = {operator_size{"mlp_proj", linear_backward_workspace<T>(n, c, f)},
                       {"gelu", 0},
                       {"fc", linear_backward_workspace<T>(n, f, c)},
                       {"ln_2", 0},
                       {"attn_proj", linear_backward_workspace<T>(n, c, c)},
                       {"attention", attention_backward_workspace<T>(s.attention)},
                       {"attn", linear_backward_workspace<T>(n, 3 * c, c)},
                       {"ln_1", 0}}};
}

namespace detail {

inline constexpr std::array<std::size_t, 3> gpt2_cheap_operators{0, 4, 6};
inline constexpr std::array<std::size_t, 6> gpt2_attention_operators{0, 1, 2, 4, 5, 6};
inline constexpr std::array<std::size_t, 7> gpt2_all_operators{0, 1, 2, 3, 4, 5, 6};

}  // namespace detail

/// What a rebuild runs, as positions in `gpt2_block_sizes::forward`.
constexpr std::span<std::size_t const> gpt2_block_rebuilt(gpt2_block_level level) {
  switch (level) {
    case gpt2_block_level::cheap:
      return detail::gpt2_cheap_operators;
    case gpt2_block_level::attention:
      return detail::gpt2_attention_operators;
    default:
      return detail::gpt2_all_operators;
  }
}

}  // namespace transformer
