// SPDX-License-Identifier: Apache-2.0
#pragma once
// The gradient store: contributions of micro-batches and uses, added in fp32 by the library only.
// The caller's order is the result's order: micro-batch ascending, uses in backward order.

#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"

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

/// A further contribution. The two arrays don't overlap.
template <gradient_element T>
void add(float* accumulator, T const* contribution, std::size_t n) noexcept {
  float_environment const environment;
  for (std::size_t i = 0; i < n; ++i) {
    accumulator[i] = sum(accumulator[i], widen(contribution[i]));
  }
}

}  // namespace protrain::inline v0::optim
