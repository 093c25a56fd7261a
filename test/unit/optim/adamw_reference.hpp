// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW in fp64, and how far fp32 may be from it.

#include "protrain/optim/adamw.hpp"

#include <cmath>

namespace protrain_test {

/// One element's parameter and state.
struct adamw_values {
  float p;
  float m;
  float v;
};

/// Whether `after` is a step from finite `before` within the rounding errors that the contract's
/// operations allow, beside exact arithmetic in fp64.
inline bool is_step(protrain::optim::adamw_step const& step,
                    float s,
                    float gradient,
                    adamw_values const& before,
                    adamw_values const& after) {
  constexpr double u = 0x1p-24;  // relative error of one fp32 rounding
  auto const wide = [](float x) { return static_cast<double>(x); };
  double const g = wide(s) * wide(gradient);
  double const m = wide(step.b1) * wide(before.m) + wide(step.one_minus_b1) * g;
  double const v = wide(step.b2) * wide(before.v) + wide(step.one_minus_b2) * g * g;
  // g and (1 - b1) g round, then the sum.
  double const m_bound = 2.01 * u * std::abs(wide(step.one_minus_b1) * g) + u * std::abs(m);
  // g twice, two products, then the sum.
  double const v_bound = 4.01 * u * wide(step.one_minus_b2) * g * g + u * std::abs(v);

  double const d = std::sqrt(v) * wide(step.r) + wide(step.eps);
  double const move = wide(step.a) * m / d;
  double const kept = wide(step.k) * wide(before.p);
  // v carries at most 5 u (halved by the root), root, fma and quotient one each.
  double const move_bound = 6.6 * u * std::abs(move) + wide(step.a) / d * m_bound;
  double const p_bound = move_bound + u * std::abs(kept) + u * std::abs(kept - move);
  return std::abs(wide(after.m) - m) <= m_bound + 0x1p-126 &&
         std::abs(wide(after.v) - v) <= v_bound + 0x1p-126 &&
         std::abs(wide(after.p) - (kept - move)) <= 1.01 * p_bound + 0x1p-149;
}

}  // namespace protrain_test
