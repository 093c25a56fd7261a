// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step over a range of elements on the host, for each state format and any update rule.
// Ranges may start and end anywhere: a step has no memory beyond its element.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/update_rule.hpp"

#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim {

/// Steps `n` elements. Arrays don't overlap. A rule may do the first elements itself, in vectors:
/// `R::vectorised(step, s, gradient, master, state, n)` returns how many it did, with the bits of
/// `R::element`.
template <update_rule R, gradient_element G, master_arrays M>
void update_range(typename R::step_type const& step,
                  float s,
                  G const* gradient,
                  M const& master,
                  state_arrays<R> const& state,
                  std::size_t n) noexcept {
  float_environment const environment;
  std::size_t first = 0;
  if constexpr (requires { R::vectorised(step, s, gradient, master, state, n); }) {
    first = R::vectorised(step, s, gradient, master, state, n);
  }
  for (std::size_t i = first; i < n; ++i) {
    float p = master.load(i);
    element_state<R> own;
    for (std::size_t k = 0; k < R::state_tensors; ++k) {
      own[k] = state[k][i];
    }
    R::element(step, s, widen(gradient[i]), p, own);
    master.store(i, p);
    for (std::size_t k = 0; k < R::state_tensors; ++k) {
      state[k][i] = own[k];
    }
  }
}

/// State format `fp32`: the parameter is its own master.
template <update_rule R, gradient_element G>
void update_fp32(typename R::step_type const& step,
                 float s,
                 G const* gradient,
                 float* parameter,
                 state_arrays<R> const& state,
                 std::size_t n) noexcept {
  update_range<R>(step, s, gradient, whole_master{parameter}, state, n);
}

/// State format `split_master`: `hi` is the working bf16 value, `lo` the rest of the master.
template <update_rule R, gradient_element G>
void update_split(typename R::step_type const& step,
                  float s,
                  G const* gradient,
                  bfloat16* hi,
                  std::int16_t* lo,
                  state_arrays<R> const& state,
                  std::size_t n) noexcept {
  update_range<R>(step, s, gradient, split_halves{hi, lo}, state, n);
}

/// State format `separate_master` with bf16 or fp16 values: `value` is written, never read. The
/// inverse of an fp16 job's loss scale is part of `s`.
template <update_rule R, gradient_element G, stored_float T>
void update_separate(typename R::step_type const& step,
                     float s,
                     G const* gradient,
                     float* master,  // NOLINT(readability-non-const-parameter): written
                     T* value,
                     state_arrays<R> const& state,
                     std::size_t n) noexcept {
  update_range<R>(step, s, gradient, master_beside<T>{master, value}, state, n);
}

}  // namespace protrain::inline v0::optim
