// SPDX-License-Identifier: Apache-2.0
#pragma once
// SwiGLU: silu(gate) times up, where silu(x) is x times its sigmoid.

#include "examples/transformer/simd.hpp"

namespace transformer {

namespace detail {

template <class A>
pack<A> sigmoid(pack<A> x) {
  auto const one = pack<A>::all(A{1});
  return one / (one + exp(pack<A>{} - x));
}

}  // namespace detail

/// y = silu(gate) up, all of n elements.
template <class T>
void swiglu_forward(length n, T const* gate, T const* up, T* y) {
  using real = accumulator_t<T>;
  for_packs<real>(n, [&](length i, length count) {
    auto const x = load(gate + i, count);
    store(y + i, x * detail::sigmoid(x) * load(up + i, count), count);
  });
}

/// Overwrites dgate and dup; either may be dy itself.
template <class T>
void swiglu_backward(length n, T const* gate, T const* up, T const* dy, T* dgate, T* dup) {
  using real = accumulator_t<T>;
  auto const one = pack<real>::all(real{1});
  for_packs<real>(n, [&](length i, length count) {
    auto const x = load(gate + i, count);
    auto const s = detail::sigmoid(x);
    auto const slope = load(dy + i, count);
    auto const gate_slope = slope * load(up + i, count) * s * (one + x * (one - s));
    store(dup + i, slope * x * s, count);
    store(dgate + i, gate_slope, count);
  });
}

}  // namespace transformer
