// SPDX-License-Identifier: Apache-2.0
#pragma once
// Token embedding, with or without a position embedding, and dropout. Their gradients add rows in token order, whatever
// the ids: a list of rows per vocabulary entry instead of a scatter.

#include "examples/transformer/dropout.hpp"

#include <algorithm>

namespace transformer {

struct embedding_shape {
  length samples;
  length tokens;  // at most positions, if there are any
  length channels;
  length vocabulary;
  length positions;  // rows of the position embedding; 0: there is none

  constexpr length rows() const { return samples * tokens; }
};

/// Accumulators that `embedding_backward` needs.
constexpr length embedding_backward_workspace(embedding_shape const& s) {
  return aligned(s.channels);
}

/// std::int32_t that `embedding_backward` needs besides.
constexpr length embedding_backward_lists(embedding_shape const& s) {
  return s.vocabulary + s.rows();
}

/// y[row] = dropout(wte[ids[row]] + wpe[row % tokens]). Ids are in [0, vocabulary). Without
/// positions wpe is not read.
template <class T>
void embedding_forward(embedding_shape const& s,
                       std::int32_t const* ids,
                       T const* wte,
                       T const* wpe,
                       dropout_key const& key,
                       T* y) {
  using real = accumulator_t<T>;
  for_dropped_rows<real>(s.samples,
                         s.tokens,
                         s.channels,
                         key,
                         [&](length row, length i, length count, pack<real> factor) {
                           auto sum = load(wte + ids[row] * s.channels + i, count);
                           if (s.positions > 0) {
                             sum = sum + load(wpe + row % s.tokens * s.channels + i, count);
                           }
                           store(y + row * s.channels + i, sum * factor, count);
                         });
}

namespace detail {

/// sums[channels] += gradient of one row before dropout.
template <class T, class A>
void add_embedding_row(
    embedding_shape const& s, length row, T const* dy, dropout_key const& key, A* sums) {
  auto const add = [&](length i, length count, pack<A> factor) {
    store(sums + i, load(sums + i, count) + load(dy + row * s.channels + i, count) * factor, count);
  };
  if (key.on()) {
    for_dropped_packs<A>(
        key.sample(row / s.tokens), dropout_element(row % s.tokens, s.channels), s.channels, add);
  } else {
    for_packs<A>(s.channels, [&](length i, length count) { add(i, count, pack<A>::all(A{1})); });
  }
}

/// to[channels] = sums, rounded once; sums = 0.
template <class T, class A>
void take_sums(length channels, A* sums, T* to) {
  for_packs<A>(channels, [&](length i, length count) {
    store(to + i, load(sums + i, count), count);
    store(sums + i, pack<A>{}, count);
  });
}

}  // namespace detail

/// Overwrites dwte[vocabulary, channels] and dwpe[positions, channels].
template <class T>
void embedding_backward(embedding_shape const& s,
                        std::int32_t const* ids,
                        T const* dy,
                        dropout_key const& key,
                        T* dwte,
                        T* dwpe,
                        accumulator_t<T>* sums,
                        std::int32_t* lists) {
  std::int32_t* const head = lists;  // first row of each entry, -1: none
  std::int32_t* const next = lists + s.vocabulary;
  std::fill_n(head, s.vocabulary, -1);
  for (length row = s.rows() - 1; row >= 0; --row) {
    next[row] = head[ids[row]];
    head[ids[row]] = static_cast<std::int32_t>(row);
  }
  std::fill_n(sums, s.channels, accumulator_t<T>{});
  for (length entry = 0; entry < s.vocabulary; ++entry) {
    for (length row = head[entry]; row >= 0; row = next[row]) {
      detail::add_embedding_row(s, row, dy, key, sums);
    }
    detail::take_sums(s.channels, sums, dwte + entry * s.channels);
  }
  for (length place = 0; place < s.positions; ++place) {
    for (length b = 0; place < s.tokens && b < s.samples; ++b) {
      detail::add_embedding_row(s, b * s.tokens + place, dy, key, sums);
    }
    detail::take_sums(s.channels, sums, dwpe + place * s.channels);
  }
}

}  // namespace transformer
