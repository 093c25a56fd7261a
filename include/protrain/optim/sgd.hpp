// SPDX-License-Identifier: Apache-2.0
#pragma once
// Stochastic gradient descent with momentum and decoupled weight decay: one state tensor, and the
// same bits on every host, instruction set and device.

#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/core/strict_math.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/update_rule.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim {

/// The numbers of one step, as kernels take them.
struct sgd_step {
  float lr = 0;
  float k = 1;  // 1 - lr * weight_decay
  float momentum = 0;

  bool operator==(sgd_step const&) const = default;
};

/// g = s G; u = momentum u + g; p = k p - lr u. Its one state tensor is u.
struct sgd {
  using policy_tag = update_rule_tag;
  using step_type = sgd_step;
  static constexpr std::size_t state_tensors = 1;

  double momentum = 0.9;
  double weight_decay = 0;

  /// In fp64, each result rounded once. Nothing depends on `t`; a parameter without decay takes
  /// k = 1.
  step_type prepare(double learning_rate, std::int64_t t, bool decay) const {
    float_environment const environment;
    PROTRAIN_EXPECT(t >= 1, "the first update has t = 1");
    PROTRAIN_EXPECT(momentum >= 0 && momentum < 1, "momentum lies in [0, 1)");
    double const lr = settled(learning_rate);
    double const k = decay ? std::fma(-lr, settled(weight_decay), 1.0) : 1.0;
    return {.lr = settled(static_cast<float>(lr)),
            .k = settled(static_cast<float>(k)),
            .momentum = settled(static_cast<float>(settled(momentum)))};
  }

  static PROTRAIN_HD void element(step_type const& step,
                                  float s,
                                  float gradient,
                                  float& p,
                                  element_state<sgd>& state) noexcept {
    float const u = fused(step.momentum, state[0], product(s, gradient));
    p = canonical(fused(-step.lr, u, product(step.k, p)));
    state[0] = stored_state(u);
  }

  bool operator==(sgd const&) const = default;
};
static_assert(update_rule<sgd>);

}  // namespace protrain::inline v0::optim
