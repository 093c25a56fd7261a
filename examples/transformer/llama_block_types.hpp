// SPDX-License-Identifier: Apache-2.0
#pragma once
// What one LLaMA block works on: shape, parameters, saved and temporary tensors as raw pointers, and
// the size of each, so that a caller can provide the memory.

#include "examples/transformer/attention.hpp"
#include "examples/transformer/linear.hpp"
#include "examples/transformer/rope.hpp"
#include "examples/transformer/tensor_sizes.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace transformer {

struct llama_block_shape {
  attention_shape attention{};  // its channels need not be those of the block
  length channels = 0;
  length inner = 0;  // channels of the MLP
  double epsilon = 1e-6;
  double theta = 10'000;

  constexpr length rows() const { return attention.rows(); }
  constexpr length key_channels() const { return attention.key_heads * attention.head_channels(); }
};

/// P = T const: weights; P = T: gradients. All weights are [outputs, inputs], without bias.
template <class P>
struct llama_block_parameters {
  P* norm_1;
  P* q;
  P* k;
  P* v;
  P* o;  // [C, attention channels]
  P* norm_2;
  P* gate;  // [inner, C]
  P* up;
  P* down;  // [C, inner]
};

/// What forward leaves for backward, in the order of `llama_block_sizes::saved`.
template <class T>
struct llama_block_saved {
  T* norm_1;
  accumulator_t<T>* norm_1_rstd;
  T* qkv;  // queries and keys turned by their positions
  T* probabilities;
  T* attention;
  T* residual;  // x + projected attention
  T* norm_2;
  accumulator_t<T>* norm_2_rstd;
  T* gate;
  T* up;
  T* swiglu;
};

/// How much of what forward saved is there when the block is rebuilt.
enum class llama_block_level : std::uint8_t {
  cheap,      // all but norm_1, norm_2 and swiglu, which cost no product
  attention,  // attention, residual and the norms' rstds only
};

/// In the order of `llama_block_sizes::saved`: the level at which a tensor is first dropped, from 1;
/// 0: kept at both.
inline constexpr std::array<std::uint32_t, 11> llama_block_dropped{1, 0, 2, 2, 0, 0, 1, 0, 2, 2, 1};

/// Live from the first to the last operator of backward, in the order of
/// `llama_block_sizes::temporary`.
template <class T>
struct llama_block_temporary {
  T* hidden;                // dswiglu, dup, then dqkv
  T* side;                  // dgate, then dattention
  accumulator_t<T>* norms;  // dnorm_2, then dnorm_1
  T* residual;              // dresidual
};

struct llama_block_sizes {
  std::array<tensor_size, 11> saved;
  std::array<tensor_size, 4> temporary;
  std::array<operator_size, 9> forward;
  std::array<operator_size, 9> backward;
};

namespace detail {

/// The largest of `size(m, n, k)` over the projections to queries and to keys or values.
template <class Size>
constexpr length qkv_workspace(llama_block_shape const& s, Size const& size) {
  return std::max(size(s.rows(), s.attention.channels, s.channels),
                  size(s.rows(), s.key_channels(), s.channels));
}

template <class T>
constexpr std::array<operator_size, 9> llama_forward_operators(llama_block_shape const& s) {
  length const n = s.rows();
  length const c = s.channels;
  return {operator_size{"norm_1", 0},
          {"qkv", qkv_workspace(s, linear_forward_workspace<T>)},
          {"rope", rope_workspace(s.attention)},
          {"attention", attention_forward_workspace<T>(s.attention)},
          {"o", linear_forward_workspace<T>(n, c, s.attention.channels)},
          {"norm_2", 0},
          {"gate_up", linear_forward_workspace<T>(n, s.inner, c)},
          {"swiglu", 0},
          {"down", linear_forward_workspace<T>(n, c, s.inner)}};
}

template <class T>
constexpr std::array<operator_size, 9> llama_backward_operators(llama_block_shape const& s) {
  length const n = s.rows();
  length const c = s.channels;
  return {operator_size{"down", linear_backward_workspace<T>(n, c, s.inner)},
          {"swiglu", 0},
          {"gate_up", linear_backward_workspace<T>(n, s.inner, c)},
          {"norm_2", 0},
          {"o", linear_backward_workspace<T>(n, c, s.attention.channels)},
          {"attention", attention_backward_workspace<T>(s.attention)},
          {"rope", rope_workspace(s.attention)},
          {"qkv", qkv_workspace(s, linear_backward_workspace<T>)},
          {"norm_1", 0}};
}

}  // namespace detail

template <class T>
constexpr llama_block_sizes make_llama_block_sizes(llama_block_shape const& s) {
  length const n = s.rows();
  length const c = s.channels;
  length const a = s.attention.channels;
  length const f = s.inner;
  length const packed = s.attention.packed();
  auto const values = [](std::string_view name, length elements) {
    return tensor_size{name, element_kind::value, elements};
  };
  auto const sums = [](std::string_view name, length elements) {
    return tensor_size{name, element_kind::accumulator, elements};
  };
  return {.saved = {values("norm_1", n * c),
                    sums("norm_1_rstd", n),
                    values("qkv", n * packed),
                    values("probabilities", s.attention.probabilities()),
                    values("attention", n * a),
                    values("residual", n * c),
                    values("norm_2", n * c),
                    sums("norm_2_rstd", n),
                    values("gate", n * f),
                    values("up", n * f),
                    values("swiglu", n * f)},
          .temporary = {values("hidden", n * std::max(f, packed)),
                        values("side", n * std::max(f, a)),
                        sums("norms", n * c),
                        values("dresidual", n * c)},
          .forward = detail::llama_forward_operators<T>(s),
          .backward = detail::llama_backward_operators<T>(s)};
}

namespace detail {

inline constexpr std::array<std::size_t, 3> llama_cheap_operators{0, 5, 7};
inline constexpr std::array<std::size_t, 7> llama_attention_operators{0, 1, 2, 3, 5, 6, 7};

}  // namespace detail

/// What a rebuild runs, as positions in `llama_block_sizes::forward`.
constexpr std::span<std::size_t const> llama_block_rebuilt(llama_block_level level) {
  if (level == llama_block_level::cheap) {
    return detail::llama_cheap_operators;
  }
  return detail::llama_attention_operators;
}

}  // namespace transformer
