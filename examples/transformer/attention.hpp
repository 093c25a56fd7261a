// SPDX-License-Identifier: Apache-2.0
#pragma once
// Causal multi-head self-attention, eager: the probabilities are kept for the backward pass, the
// dropout mask on them is not. Several query heads may share a key-value head.

#include "examples/transformer/dropout.hpp"
#include "examples/transformer/gemm.hpp"

namespace transformer {

struct attention_shape {
  length samples = 0;
  length tokens = 0;
  length channels = 0;  // of all query heads, a multiple of heads
  length heads = 0;
  length key_heads = heads;  // divides heads; neighbouring query heads share one

  constexpr length head_channels() const { return channels / heads; }
  constexpr length group() const { return heads / key_heads; }
  /// Channels of queries, keys and values side by side.
  constexpr length packed() const { return channels + 2 * key_heads * head_channels(); }
  constexpr length rows() const { return samples * tokens; }
  constexpr length probabilities() const { return samples * heads * tokens * tokens; }
};

template <class T>
constexpr length attention_forward_workspace(attention_shape const& s) {
  using real = accumulator_t<T>;
  return aligned(s.tokens * s.tokens) +
         std::max(gemm_workspace<T, T, real>(s.tokens, s.tokens, s.head_channels()),
                  gemm_workspace<real, T, T>(s.tokens, s.head_channels(), s.tokens));
}

template <class T>
constexpr length attention_backward_workspace(attention_shape const& s) {
  length const sums = s.heads == s.key_heads ? 0 : aligned(s.tokens * s.head_channels());
  return aligned(s.tokens * s.tokens) + 2 * sums + attention_forward_workspace<T>(s);
}

namespace detail {

/// Softmax of the first `n` of `columns` scores times `scale`, the rest zero: probabilities rounded
/// to T, and `scores` overwritten by the rounded ones.
template <class T, class A>
void softmax_row(length n, length columns, A scale, A* scores, T* probabilities) {
  auto const factor = pack<A>::all(scale);
  A const most =
      max_packs<A>(n, [&](length i, length count) { return load(scores + i, count) * factor; });
  auto const shift = pack<A>::all(most);
  A const sum = sum_packs<A>(n, [&](length i, length count) {
    auto const e = exp(load(scores + i, count) * factor - shift);
    store(scores + i, e, count);
    return e;
  });
  auto const inverse = pack<A>::all(A{1} / sum);
  for_packs<A>(n, [&](length i, length count) {
    store(probabilities + i, load(scores + i, count) * inverse, count);
    store(scores + i, load(probabilities + i, count), count);
  });
  std::fill(probabilities + n, probabilities + columns, T{});
  std::fill(scores + n, scores + columns, A{});
}

/// Derivative of dropout (none: null), softmax and scale, in place over the first n of `columns`:
/// ds = p (dp - sum dp p) scale. Writes the dropped probabilities as well.
template <class T, class A>
void attention_backward_row(length n,
                            length columns,
                            A scale,
                            T const* probabilities,
                            std::uint64_t first_draw,
                            dropout_stream const* draws,
                            A* dropped,
                            A* dp) {
  if (draws == nullptr) {
    for_packs<A>(n, [&](length i, length count) {
      store(dropped + i, load(probabilities + i, count), count);
    });
  } else {
    for_dropped_packs<A>(*draws, first_draw, n, [&](length i, length count, pack<A> factor) {
      store(dropped + i, load(probabilities + i, count) * factor, count);
      store(dp + i, load(dp + i, count) * factor, count);
    });
  }
  std::fill(dropped + n, dropped + columns, A{});
  A const dot = sum_packs<A>(n, [&](length i, length count) {
    return load(probabilities + i, count) * load(dp + i, count);
  });
  for_packs<A>(n, [&](length i, length count) {
    auto const slope = load(dp + i, count) - pack<A>::all(dot);
    store(dp + i, load(probabilities + i, count) * slope * pack<A>::all(scale), count);
  });
  std::fill(dp + n, dp + columns, A{});
}

template <class A>
A attention_scale(attention_shape const& s) {
  return static_cast<A>(1 / std::sqrt(static_cast<double>(s.head_channels())));
}

/// One head of one sample inside the packed rows.
template <class T>
struct head_operands {
  matrix<T> queries;
  matrix<T> keys;
  matrix<T> values;
};

template <class T>
head_operands<T> operands_of(attention_shape const& s, T* qkv, length sample, length head) {
  T* const first = qkv + sample * s.tokens * s.packed();
  length const width = s.head_channels();
  T* const keys = first + s.channels + head / s.group() * width;
  return {.queries = {first + head * width, s.packed()},
          .keys = {keys, s.packed()},
          .values = {keys + s.key_heads * width, s.packed()}};
}

/// The gradient of keys or values, to which each query head of the group adds left' right: summed
/// in accumulators and rounded with the last one.
template <class T>
struct shared_gradient {
  attention_shape const& s;
  accumulator_t<T>* sums;  // unused where no head is shared
  accumulator_t<T>* inner;

  void add(length head, matrix<accumulator_t<T>> left, matrix<T const> right, matrix<T> to) const {
    using real = accumulator_t<T>;
    length const n = s.tokens;
    length const width = s.head_channels();
    if (s.group() == 1) {
      gemm<operand::transposed, operand::as_is>(
          n, width, n, left, right, to, static_cast<T const*>(nullptr), inner);
      return;
    }
    length const member = head % s.group();
    gemm<operand::transposed, operand::as_is>(n,
                                              width,
                                              n,
                                              left,
                                              right,
                                              matrix{sums, width},
                                              static_cast<real const*>(nullptr),
                                              inner,
                                              member == 0 ? target::overwrite : target::add);
    for (length i = 0; member == s.group() - 1 && i < n; ++i) {
      for_packs<real>(width, [&](length j, length count) {
        store(to.data + i * to.stride + j, load(sums + i * width + j, count), count);
      });
    }
  }
};

}  // namespace detail

/// qkv [samples, tokens, packed] -> probabilities [samples, heads, tokens, tokens] before dropout,
/// and out [samples, tokens, channels] unless that is null. A row of qkv holds queries, keys and values, head by head.
template <class T>
void attention_forward(attention_shape const& s,
                       T const* qkv,
                       dropout_key const& key,
                       T* probabilities,
                       T* out,
                       accumulator_t<T>* workspace) {
  using real = accumulator_t<T>;
  real* const scores = workspace;
  real* const inner = workspace + aligned(s.tokens * s.tokens);
  length const n = s.tokens;
  length const width = s.head_channels();
  real const scale = detail::attention_scale<real>(s);
  for (length b = 0; b < s.samples; ++b) {
    auto const draws = key.on() ? key.sample(b) : dropout_stream{};
    for (length h = 0; h < s.heads; ++h) {
      auto const in = detail::operands_of(s, qkv, b, h);
      T* const p = probabilities + (b * s.heads + h) * n * n;
      gemm<operand::as_is, operand::transposed>(n,
                                                n,
                                                width,
                                                in.queries,
                                                in.keys,
                                                matrix{scores, n},
                                                static_cast<real const*>(nullptr),
                                                inner);
      for (length i = 0; i < n; ++i) {
        detail::softmax_row(i + 1, n, scale, scores + i * n, p + i * n);
        if (key.on()) {
          for_dropped_packs<real>(draws,
                                  dropout_element(h * n + i, n),
                                  i + 1,
                                  [&](length j, length count, pack<real> factor) {
                                    real* const score = scores + i * n + j;
                                    store(score, load(score, count) * factor, count);
                                  });
        }
      }
      if (out == nullptr) {
        continue;
      }
      gemm<operand::as_is, operand::as_is>(n,
                                           width,
                                           n,
                                           matrix{scores, n},
                                           in.values,
                                           matrix{out + b * n * s.channels + h * width, s.channels},
                                           static_cast<T const*>(nullptr),
                                           inner);
    }
  }
}

/// Overwrites dqkv.
template <class T>
void attention_backward(attention_shape const& s,
                        T const* qkv,
                        T const* probabilities,
                        T const* dout,
                        dropout_key const& key,
                        T* dqkv,
                        accumulator_t<T>* workspace) {
  using real = accumulator_t<T>;
  length const n = s.tokens;
  length const width = s.head_channels();
  length const sums = s.group() == 1 ? 0 : aligned(n * width);
  real* const dropped = workspace;
  real* const slopes = dropped + aligned(n * n);
  real* const inner = slopes + aligned(n * n) + 2 * sums;
  detail::shared_gradient<T> const keys{s, slopes + aligned(n * n), inner};
  detail::shared_gradient<T> const values{s, slopes + aligned(n * n) + sums, inner};
  real const scale = detail::attention_scale<real>(s);
  for (length b = 0; b < s.samples; ++b) {
    auto const draws = key.on() ? key.sample(b) : dropout_stream{};
    for (length h = 0; h < s.heads; ++h) {
      auto const in = detail::operands_of(s, qkv, b, h);
      auto const out = detail::operands_of(s, dqkv, b, h);
      matrix const dy{dout + b * n * s.channels + h * width, s.channels};
      T const* const p = probabilities + (b * s.heads + h) * n * n;
      gemm<operand::as_is, operand::transposed>(
          n, n, width, dy, in.values, matrix{slopes, n}, static_cast<real const*>(nullptr), inner);
      for (length i = 0; i < n; ++i) {
        detail::attention_backward_row(i + 1,
                                       n,
                                       scale,
                                       p + i * n,
                                       dropout_element(h * n + i, n),
                                       key.on() ? &draws : nullptr,
                                       dropped + i * n,
                                       slopes + i * n);
      }
      values.add(h, {dropped, n}, dy, out.values);
      gemm<operand::as_is, operand::as_is>(n,
                                           width,
                                           n,
                                           matrix{slopes, n},
                                           in.keys,
                                           out.queries,
                                           static_cast<T const*>(nullptr),
                                           inner);
      keys.add(h, {slopes, n}, in.queries, out.keys);
    }
  }
}

}  // namespace transformer
