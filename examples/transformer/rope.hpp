// SPDX-License-Identifier: Apache-2.0
#pragma once
// Rotary position embedding: channels i and i + half of each query and key head turn by
// position x theta^(-i / half), the pairing of the published LLaMA checkpoints.

#include "examples/transformer/attention.hpp"

namespace transformer {

/// Accumulators that both directions need: a cosine and a sine per token and pair of channels.
constexpr length rope_workspace(attention_shape const& s) {
  return 2 * aligned(s.tokens * (s.head_channels() / 2));
}

namespace detail {

enum class turn : std::uint8_t { forward, back };

/// Angles in fp64, rounded once, so that the last bit of libm's results hardly ever matters.
template <class A>
void rope_table(length tokens, length half, double theta, A* cosines, A* sines) {
  for (length i = 0; i < half; ++i) {
    double const frequency = std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
    for (length t = 0; t < tokens; ++t) {
      double const angle = static_cast<double>(t) * frequency;
      cosines[t * half + i] = static_cast<A>(std::cos(angle));
      sines[t * half + i] = static_cast<A>(std::sin(angle));
    }
  }
}

template <class T, class A>
void rope_head(length half, A const* cosines, A const* sines, turn direction, T* head) {
  for_packs<A>(half, [&](length i, length count) {
    auto const first = load(head + i, count);
    auto const second = load(head + half + i, count);
    auto const c = load(cosines + i, count);
    auto const s =
        direction == turn::forward ? load(sines + i, count) : pack<A>{} - load(sines + i, count);
    store(head + i, first * c - second * s, count);
    store(head + half + i, second * c + first * s, count);
  });
}

template <class T>
void rope(
    attention_shape const& s, double theta, turn direction, T* qkv, accumulator_t<T>* workspace) {
  length const half = s.head_channels() / 2;
  auto* const cosines = workspace;
  auto* const sines = workspace + aligned(s.tokens * half);
  rope_table(s.tokens, half, theta, cosines, sines);
  for (length row = 0; row < s.rows(); ++row) {
    length const at = row % s.tokens * half;
    for (length h = 0; h < s.heads + s.key_heads; ++h) {
      rope_head(half, cosines + at, sines + at, direction, qkv + row * s.packed() + h * 2 * half);
    }
  }
}

}  // namespace detail

/// Turns queries and keys of qkv (as `attention_forward` reads it) in place; head_channels is even.
template <class T>
void rope_forward(attention_shape const& s, double theta, T* qkv, accumulator_t<T>* workspace) {
  detail::rope(s, theta, detail::turn::forward, qkv, workspace);
}

/// dqkv of what was turned becomes that of what came in, in place: the turn is orthogonal.
template <class T>
void rope_backward(attention_shape const& s, double theta, T* dqkv, accumulator_t<T>* workspace) {
  detail::rope(s, theta, detail::turn::back, dqkv, workspace);
}

}  // namespace transformer
