// SPDX-License-Identifier: Apache-2.0
#pragma once
// Dropout whose masks are drawn again where they are needed, never stored: a draw belongs to (seed,
// step, sample, block, operator, element), so that recomputation and micro-batches don't change it.

#include "examples/transformer/simd.hpp"
#include <protrain/core/philox.hpp>

namespace transformer {

using protrain::core::random_key;

/// The draws of one sample for one operator. Rows start at multiples of four elements, so that one
/// Philox call serves four.
struct dropout_stream {
  protrain::core::random_stream stream;
  std::uint32_t threshold = 0;
  double scale = 1;

  bool keep(std::uint64_t element) const { return stream.word(element) >= threshold; }
};

/// Dropout of one operator in one micro-batch. `at.sample` is the global index of its first sample.
struct dropout_key {
  random_key at{};
  double probability = 0;  // in [0, 1); 0 is off

  bool on() const { return probability > 0; }

  dropout_stream sample(length sample_in_micro_batch) const {
    random_key key = at;
    key.sample += static_cast<std::uint64_t>(sample_in_micro_batch);
    return {.stream = protrain::core::make_stream(key),
            .threshold = static_cast<std::uint32_t>(probability * 0x1p32),
            .scale = 1 / (1 - probability)};
  }

  /// Whether an element, counted within its sample, survives.
  bool keep(length sample_in_micro_batch, std::uint64_t element) const {
    return !on() || sample(sample_in_micro_batch).keep(element);
  }
};

/// The number that the first element of a row of `columns` has among a sample's draws.
constexpr std::uint64_t dropout_element(length row, length columns) {
  return static_cast<std::uint64_t>(row) * ((static_cast<std::uint64_t>(columns) + 3) / 4 * 4);
}

/// body(i, count, factor) over [0, n), element `first` (a multiple of four) being at 0: the factor
/// is 0 for a dropped element and 1 / (1 - p) for a kept one.
template <class A, class Body>
void for_dropped_packs(dropout_stream const& draws,
                       std::uint64_t first,
                       length n,
                       Body const& body) {
  constexpr length width = pack<A>::width;
  A const scale = static_cast<A>(draws.scale);
  for (length i = 0; i < n; i += 4) {
    auto const words = draws.stream.quad(first / 4 + static_cast<std::uint64_t>(i / 4));
    A factors[4];
    for (std::size_t lane = 0; lane < 4; ++lane) {
      factors[lane] = words[lane] >= draws.threshold ? scale : A{};
    }
    for (length lane = 0; lane < 4 && i + lane < n; lane += width) {
      length const left = n - i - lane;
      body(i + lane, left < width ? left : width, load(factors + lane, width));
    }
  }
}

/// The same for every row of a micro-batch: body(row, i, count, factor), factors 1 if `key` is off.
template <class A, class Body>
void for_dropped_rows(
    length samples, length rows, length columns, dropout_key const& key, Body const& body) {
  auto const one = pack<A>::all(A{1});
  for (length b = 0; b < samples; ++b) {
    auto const draws = key.on() ? key.sample(b) : dropout_stream{};
    for (length r = 0; r < rows; ++r) {
      auto const one_row = [&](length i, length count, pack<A> factor) {
        body(b * rows + r, i, count, factor);
      };
      if (key.on()) {
        for_dropped_packs<A>(draws, dropout_element(r, columns), columns, one_row);
      } else {
        for_packs<A>(columns, [&](length i, length count) { one_row(i, count, one); });
      }
    }
  }
}

/// y = x + dropout(branch), all [samples, tokens, channels]; y may be either.
template <class T>
void residual_forward(length samples,
                      length tokens,
                      length channels,
                      T const* x,
                      T const* branch,
                      dropout_key const& key,
                      T* y) {
  using real = accumulator_t<T>;
  for_dropped_rows<real>(
      samples, tokens, channels, key, [&](length row, length i, length count, pack<real> factor) {
        length const at = row * channels + i;
        store(y + at, load(x + at, count) + load(branch + at, count) * factor, count);
      });
}

/// dbranch = dy where kept, scaled; may be dy itself. With dropout off this is a copy: use dy.
template <class T>
void dropout_backward(length samples,
                      length tokens,
                      length channels,
                      T const* dy,
                      dropout_key const& key,
                      T* dbranch) {
  using real = accumulator_t<T>;
  for_dropped_rows<real>(
      samples, tokens, channels, key, [&](length row, length i, length count, pack<real> factor) {
        length const at = row * channels + i;
        store(dbranch + at, load(dy + at, count) * factor, count);
      });
}

}  // namespace transformer
