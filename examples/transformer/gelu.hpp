// SPDX-License-Identifier: Apache-2.0
#pragma once
// GELU in the tanh approximation (GPT-2's gelu_new), written as x times a sigmoid: no tanh, and no
// cancellation where the result is small.

#include "examples/transformer/simd.hpp"

namespace transformer {

namespace detail {

inline constexpr double gelu_slope = 0.79788456080286535588;  // sqrt(2 / pi)
inline constexpr double gelu_cubic = 0.044715;

/// (1 + tanh u) / 2 = 1 / (1 + e^-2u) with u = slope (x + cubic x^3).
template <class A>
pack<A> gelu_gate(pack<A> x) {
  auto const one = pack<A>::all(A{1});
  auto const cubic = pack<A>::all(static_cast<A>(gelu_cubic));
  auto const twice = pack<A>::all(static_cast<A>(-2 * gelu_slope));
  return one / (one + exp(twice * x * (one + cubic * x * x)));
}

}  // namespace detail

template <class T>
void gelu_forward(length n, T const* x, T* y) {
  using real = accumulator_t<T>;
  for_packs<real>(n, [&](length i, length count) {
    auto const value = load(x + i, count);
    store(y + i, value * detail::gelu_gate(value), count);
  });
}

/// Overwrites dx, which may be dy itself.
template <class T>
void gelu_backward(length n, T const* x, T const* dy, T* dx) {
  using real = accumulator_t<T>;
  auto const one = pack<real>::all(real{1});
  auto const slope = pack<real>::all(static_cast<real>(2 * detail::gelu_slope));
  auto const cubic = pack<real>::all(static_cast<real>(3 * detail::gelu_cubic));
  for_packs<real>(n, [&](length i, length count) {
    // Beyond 30 the gate is 0 or 1 in any type, and squares stay finite.
    auto const value =
        min(max(load(x + i, count), pack<real>::all(real{-30})), pack<real>::all(real{30}));
    auto const gate = detail::gelu_gate(value);
    auto const steepness = slope * (one + cubic * value * value);
    auto const derivative = gate + value * steepness * gate * (one - gate);
    store(dx + i, load(dy + i, count) * derivative, count);
  });
}

}  // namespace transformer
