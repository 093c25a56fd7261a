// SPDX-License-Identifier: Apache-2.0
#pragma once
// Softmax cross entropy of rows of logits that may come in chunks of the vocabulary: the largest
// logit and the sum of exponentials are kept per row, so that no row needs to exist as a whole.

#include "examples/transformer/simd.hpp"

namespace transformer {

/// What is known of a row after the chunks seen so far; plain arrays of one value per row.
template <class A>
struct cross_entropy_rows {
  A* largest;
  A* sum;     // of e^(logit - largest)
  A* target;  // the target's logit, 0 for an ignored row
};

template <class A>
void cross_entropy_begin(length rows, cross_entropy_rows<A> const& state) {
  std::fill_n(state.largest, rows, -std::numeric_limits<A>::infinity());
  std::fill_n(state.sum, rows, A{});
  std::fill_n(state.target, rows, A{});
}

/// Takes logits[rows, count] of the vocabulary's entries `first` to `first` + count - 1. Targets
/// below 0 are ignored.
template <class A, class L>
void cross_entropy_add(length rows,
                       length first,
                       length count,
                       L const* logits,
                       std::int32_t const* targets,
                       cross_entropy_rows<A> const& state) {
  for (length r = 0; r < rows; ++r) {
    L const* const row = logits + r * count;
    A const here =
        max_packs<A>(count, [&](length i, length lanes) { return load(row + i, lanes); });
    A const before = state.largest[r];
    A const largest = here > before ? here : before;
    auto const shift = pack<A>::all(largest);
    A const sum = sum_packs<A>(
        count, [&](length i, length lanes) { return exp(load(row + i, lanes) - shift); });
    A const shrink = exp(pack<A>::all(before - largest)).v[0];
    state.sum[r] = state.sum[r] * shrink + sum;
    state.largest[r] = largest;
    length const target = targets[r] - first;
    if (targets[r] >= 0 && target >= 0 && target < count) {
      state.target[r] = load(row + target, 1).v[0];
    }
  }
}

/// losses[samples]: each sample's sum over its tokens in ascending order. log_sums[rows] is what
/// the backward pass needs: ln of the sum of e^logit.
template <class A>
void cross_entropy_finish(length samples,
                          length tokens,
                          std::int32_t const* targets,
                          cross_entropy_rows<A> const& state,
                          A* log_sums,
                          A* losses) {
  for (length b = 0; b < samples; ++b) {
    A loss{};
    for (length r = b * tokens; r < (b + 1) * tokens; ++r) {
      log_sums[r] = state.largest[r] + log(state.sum[r]);
      loss += targets[r] < 0 ? A{} : log_sums[r] - state.target[r];
    }
    losses[b] = loss;
  }
}

/// Overwrites dlogits[rows, count] (may be the logits): (softmax - target) scale; 0 if ignored.
template <class A, class L>
void cross_entropy_backward(length rows,
                            length first,
                            length count,
                            L const* logits,
                            std::int32_t const* targets,
                            A const* log_sums,
                            A scale,
                            L* dlogits) {
  auto const factor = pack<A>::all(scale);
  for (length r = 0; r < rows; ++r) {
    L* const out = dlogits + r * count;
    if (targets[r] < 0) {
      std::fill_n(out, count, L{});
      continue;
    }
    L const* const row = logits + r * count;
    auto const shift = pack<A>::all(log_sums[r]);
    length const target = targets[r] - first;
    bool const inside = target >= 0 && target < count;
    A const own = inside ? exp(load(row + target, 1) - shift).v[0] - A{1} : A{};
    for_packs<A>(count, [&](length i, length lanes) {
      store(out + i, exp(load(row + i, lanes) - shift) * factor, lanes);
    });
    if (inside) {
      store(out + target, pack<A>::all(own * scale), 1);
    }
  }
}

/// Tokens that count: targets of 0 and above.
inline length count_targets(length rows, std::int32_t const* targets) {
  length count = 0;
  for (length r = 0; r < rows; ++r) {
    count += targets[r] >= 0 ? 1 : 0;
  }
  return count;
}

}  // namespace transformer
