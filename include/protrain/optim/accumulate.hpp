// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradient store: contributions of micro-batches and uses, added in fp32 by the library only.
// The caller's order is the result's order: micro-batch ascending, uses in backward order.

#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/detail/sums_avx2.hpp"
#include "protrain/optim/detail/sums_avx512.hpp"
#include "protrain/optim/vectors.hpp"

#include <concepts>
#include <cstddef>

namespace protrain::inline v0::optim {

/// The first of several contributions: it is converted, not added to zeros, so -0 stays. The two
/// arrays don't overlap.
template <gradient_element T>
void store(float* accumulator, T const* contribution, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    accumulator[i] = widen(contribution[i]);
  }
}

/// The only contribution, kept in gradient dtype because its update waits for the norm.
template <gradient_element T>
  requires(!std::same_as<T, float>)
void store(T* kept, T const* contribution, std::size_t n) noexcept {
  for (std::size_t i = 0; i < n; ++i) {
    kept[i] = contribution[i];
  }
}

namespace detail {

/// Adds whole vectors and returns how many elements that were.
template <gradient_element T>
std::size_t add_vectors([[maybe_unused]] vectors with,
                        [[maybe_unused]] float* accumulator,
                        [[maybe_unused]] T const* contribution,
                        [[maybe_unused]] std::size_t n) noexcept {
#if defined(__x86_64__)
  if constexpr (stored_float<T>) {
    if (with == vectors::avx512) {
      return avx512::add(accumulator, contribution, n);
    }
    if (with == vectors::avx2) {
      return avx2::add(accumulator, contribution, n);
    }
  }
#endif
  return 0;
}

}  // namespace detail

/// A further contribution. The two arrays don't overlap. The processor supports `with`; the bits
/// of what isn't a NaN don't depend on it.
template <gradient_element T>
void add(float* accumulator,
         T const* contribution,
         std::size_t n,
         vectors with = widest_vectors()) noexcept {
  float_environment const environment;
  for (std::size_t i = detail::add_vectors(with, accumulator, contribution, n); i < n; ++i) {
    accumulator[i] = sum(accumulator[i], widen(contribution[i]));
  }
}

}  // namespace protrain::inline v0::optim
