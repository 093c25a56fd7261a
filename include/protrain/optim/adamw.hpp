// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW (decoupled weight decay) with the same bits on every host, instruction set and device.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/detail/adamw_avx2.hpp"
#include "protrain/optim/detail/adamw_avx512.hpp"
#include "protrain/optim/detail/adamw_step.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/optim/vectors.hpp"

#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim {

namespace detail {

/// base^t by repeated squaring from the lowest bit up; pow differs between libraries. A product
/// that is not settled could be contracted with the 1 - base^t around it.
inline double power(double base, std::int64_t t) noexcept {
  double result = 1.0;
  for (; t > 0; t /= 2) {
    result = t % 2 != 0 ? settled(result * base) : result;
    base = settled(base * base);
  }
  return result;
}

}  // namespace detail

/// Element step: g = s G; m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; p = k p - a m / (sqrt(v) r
/// + eps), each sum an fma whose addend is a rounded product.
PROTRAIN_HD inline void adamw_element(
    adamw_step const& step, float s, float gradient, float& p, float& m, float& v) noexcept {
  float const g = product(s, gradient);
  float const m1 = fused(step.b1, m, product(step.one_minus_b1, g));
  float const v1 = fused(step.b2, v, product(product(step.one_minus_b2, g), g));
  float const d = fused(square_root(v1), step.r, step.eps);
  p = canonical(fused(-step.a, quotient(m1, d), product(step.k, p)));
  m = stored_state(m1);
  v = stored_state(v1);
}

namespace detail {

template <class M>
inline constexpr bool has_vectors =
    std::same_as<M, whole_master> || std::same_as<M, split_halves> ||
    std::same_as<M, master_beside<bfloat16>> || std::same_as<M, master_beside<float16>>;

}  // namespace detail

/// Steps whole vectors of elements with the instructions `with`, which the processor supports, and
/// returns how many elements that were; same bits as `adamw_element`. The caller sets the
/// floating-point environment.
template <stored_float G, master_arrays M>
  requires detail::has_vectors<M>
std::size_t adamw_vectors([[maybe_unused]] vectors with,
                          adamw_step const& step,
                          float s,
                          G const* gradient,
                          M const& master,
                          float* m,
                          float* v,
                          std::size_t n) noexcept {
#if defined(__x86_64__)
  if (with == vectors::avx512) {
    return detail::avx512::update(step, s, gradient, master, m, v, n);
  }
  if (with == vectors::avx2) {
    return detail::avx2::update(step, s, gradient, master, m, v, n);
  }
#endif
  return 0;
}

struct adamw {
  using policy_tag = update_rule_tag;
  using step_type = adamw_step;
  static constexpr std::size_t state_tensors = 2;  // m, v

  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.01;

  /// In fp64, each result rounded once. `t` counts applied updates from 1; a parameter without
  /// decay (biases, norms) takes k = 1.
  step_type prepare(double learning_rate, std::int64_t t, bool decay) const {
    float_environment const environment;
    PROTRAIN_EXPECT(t >= 1, "the first update has t = 1");
    PROTRAIN_EXPECT(beta1 >= 0 && beta1 < 1, "beta1 lies in [0, 1)");
    PROTRAIN_EXPECT(beta2 >= 0 && beta2 < 1, "beta2 lies in [0, 1)");
    PROTRAIN_EXPECT(static_cast<float>(eps) > 0.0F,
                    "eps is positive in fp32: a zero gradient would give 0 / 0");
    double const lr = settled(learning_rate);
    double const first = settled(beta1);
    double const second = settled(beta2);
    double const a = lr / (1.0 - detail::power(first, t));
    double const r = 1.0 / std::sqrt(1.0 - detail::power(second, t));
    double const k = decay ? std::fma(-lr, settled(weight_decay), 1.0) : 1.0;
    return {.a = settled(static_cast<float>(a)),
            .r = settled(static_cast<float>(r)),
            .k = settled(static_cast<float>(k)),
            .b1 = settled(static_cast<float>(first)),
            .one_minus_b1 = settled(static_cast<float>(1.0 - first)),
            .b2 = settled(static_cast<float>(second)),
            .one_minus_b2 = settled(static_cast<float>(1.0 - second)),
            .eps = settled(static_cast<float>(settled(eps)))};
  }

  static PROTRAIN_HD void element(step_type const& step,
                                  float s,
                                  float gradient,
                                  float& p,
                                  element_state<adamw>& state) noexcept {
    adamw_element(step, s, gradient, p, state[0], state[1]);
  }

  template <stored_float G, master_arrays M>
    requires detail::has_vectors<M>
  static std::size_t vectorised(step_type const& step,
                                float s,
                                G const* gradient,
                                M const& master,
                                state_arrays<adamw> const& state,
                                std::size_t n) noexcept {
    return adamw_vectors(widest_vectors(), step, s, gradient, master, state[0], state[1], n);
  }

  bool operator==(adamw const&) const = default;
};
static_assert(update_rule<adamw>);

/// `optim::prepare(rule, ...)` reads as the member does.
inline adamw_step prepare(adamw const& rule, double learning_rate, std::int64_t t, bool decay) {
  return rule.prepare(learning_rate, t, decay);
}

/// State format `fp32`.
template <gradient_element G>
void update_fp32(adamw_step const& step,
                 float s,
                 G const* gradient,
                 float* p,
                 float* m,
                 float* v,
                 std::size_t n) noexcept {
  update_fp32<adamw>(step, s, gradient, p, {m, v}, n);
}

/// State format `split_master`.
template <gradient_element G>
void update_split(adamw_step const& step,
                  float s,
                  G const* gradient,
                  bfloat16* hi,
                  std::int16_t* lo,
                  float* m,
                  float* v,
                  std::size_t n) noexcept {
  update_split<adamw>(step, s, gradient, hi, lo, {m, v}, n);
}

/// State format `separate_master` with bf16 or fp16 values.
template <gradient_element G, stored_float T>
void update_separate(adamw_step const& step,
                     float s,
                     G const* gradient,
                     float* master,
                     T* value,
                     float* m,
                     float* v,
                     std::size_t n) noexcept {
  update_separate<adamw>(step, s, gradient, master, value, {m, v}, n);
}

}  // namespace protrain::inline v0::optim
