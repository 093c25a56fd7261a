// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step over a range of elements on the host, for each state format and any update rule.
// Ranges may start and end anywhere: a step has no memory beyond its element.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/update_rule.hpp"

#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim {

namespace detail {

/// Steps element i between its arrays and values: `master` reads and writes the fp32 parameter.
template <update_rule R, gradient_element G, class Load, class Save>
void update_elements(typename R::step_type const& step,
                     float s,
                     G const* gradient,
                     state_arrays<R> const& state,
                     std::size_t n,
                     Load load,
                     Save save) noexcept {
  float_environment const environment;
  for (std::size_t i = 0; i < n; ++i) {
    float p = load(i);
    element_state<R> own;
    for (std::size_t k = 0; k < R::state_tensors; ++k) {
      own[k] = state[k][i];
    }
    R::element(step, s, widen(gradient[i]), p, own);
    save(i, p);
    for (std::size_t k = 0; k < R::state_tensors; ++k) {
      state[k][i] = own[k];
    }
  }
}

}  // namespace detail

/// State format `fp32`: the parameter is its own master. Arrays don't overlap.
template <update_rule R, gradient_element G>
void update_fp32(typename R::step_type const& step,
                 float s,
                 G const* gradient,
                 float* parameter,
                 state_arrays<R> const& state,
                 std::size_t n) noexcept {
  detail::update_elements<R>(
      step,
      s,
      gradient,
      state,
      n,
      [parameter](std::size_t i) { return parameter[i]; },
      [parameter](std::size_t i, float p) { parameter[i] = p; });
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
  detail::update_elements<R>(
      step,
      s,
      gradient,
      state,
      n,
      [hi, lo](std::size_t i) { return merge_master(hi[i], lo[i]); },
      [hi, lo](std::size_t i, float p) {
        split_value const halves = split_master(p);
        hi[i] = halves.hi;
        lo[i] = halves.lo;
      });
}

/// State format `separate_master` with bf16 values: `value` is written, never read.
template <update_rule R, gradient_element G>
void update_separate(typename R::step_type const& step,
                     float s,
                     G const* gradient,
                     float* master,
                     bfloat16* value,
                     state_arrays<R> const& state,
                     std::size_t n) noexcept {
  detail::update_elements<R>(
      step,
      s,
      gradient,
      state,
      n,
      [master](std::size_t i) { return master[i]; },
      [master, value](std::size_t i, float p) {
        master[i] = p;
        value[i] = to_bfloat16(p);
      });
}

}  // namespace protrain::inline v0::optim
