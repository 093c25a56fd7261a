// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of optim::update_rule, for any rule.

#include "protrain/optim/update.hpp"
#include "protrain/optim/update_rule.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace protrain_test {

template <protrain::optim::update_rule R>
bool holds_no_foreign_nan(float p, protrain::optim::element_state<R> const& state) {
  bool good = !std::isnan(p) || bits_of(p) == 0x7FC00000U;
  for (float const x : state) {
    good = good && (!std::isnan(x) || bits_of(x) == 0x7FC00000U);
  }
  return good;
}

/// Equal rules prepare equal steps, and equal arguments give equal bits.
template <protrain::optim::update_rule R>
void check_determinism(R const& rule) {
  std::vector<float> const g = spread_values(21, 100, -20, 10);
  auto const run = [&] {
    float p = 0.5F;
    protrain::optim::element_state<R> state{};
    for (std::size_t i = 0; i < g.size(); ++i) {
      auto const t = static_cast<std::int64_t>(i) + 1;
      R::element(rule.prepare(1e-3, t, t % 2 != 0), 0.5F, g[i], p, state);
    }
    return p;
  };
  CHECK(bits_of(run()) == bits_of(run()));
  CHECK(rule.prepare(1e-3, 7, true) == R{rule}.prepare(1e-3, 7, true));
}

/// Zero gradients after a first one: no denormal state, everything finite.
template <protrain::optim::update_rule R>
void check_zero_gradients(R const& rule) {
  for (float const first : spread_values(22, 32, -70, 10)) {
    float p = 1.0F;
    protrain::optim::element_state<R> state{};
    for (std::int64_t t = 1; t <= 2000; ++t) {
      R::element(rule.prepare(1e-3, t, true), 1.0F, t == 1 ? first : 0.0F, p, state);
      for (float const x : state) {
        if (x != 0.0F && !std::isnormal(x)) {
          FAIL("state is denormal or not finite at step " << t);
        }
      }
    }
    CHECK(std::isfinite(p));
  }
}

/// A NaN or infinity in any argument leaves canonical NaNs only.
template <protrain::optim::update_rule R>
void check_nan(R const& rule) {
  auto const step = rule.prepare(1e-3, 1, true);
  for (float const bad :
       {from_bits(0xFFC00000U), from_bits(0x7FFFFFFFU), std::numeric_limits<float>::infinity()}) {
    float p = 1.0F;
    protrain::optim::element_state<R> state{};
    R::element(step, 1.0F, bad, p, state);
    CHECK(holds_no_foreign_nan<R>(p, state));
    p = bad;
    state = {};
    R::element(step, 1.0F, 0.5F, p, state);
    CHECK(holds_no_foreign_nan<R>(p, state));
    for (float& x : state) {
      x = bad;
      R::element(step, 1.0F, 0.5F, p, state);
      CHECK(holds_no_foreign_nan<R>(p, state));
    }
  }
}

template <protrain::optim::update_rule R>
void check_update_rule_laws(R const& rule) {
  check_determinism(rule);
  check_zero_gradients(rule);
  check_nan(rule);
}

}  // namespace protrain_test
