// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one scalar that every gradient is multiplied by, computed once per step on rank 0.

#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/arithmetic.hpp"

namespace protrain::inline v0::optim {

/// Exactly 1 while norm <= max_norm, and with clipping off (max_norm 0); otherwise max_norm / norm.
/// A NaN norm gives the canonical NaN: a job that wants to survive it skips the step.
inline float clip_factor(float norm, float max_norm) {
  PROTRAIN_EXPECT(max_norm >= 0.0F, "the largest norm is not negative; 0 turns clipping off");
  if (max_norm == 0.0F || norm <= max_norm) {
    return 1.0F;
  }
  float_environment const environment;
  return settled(canonical(quotient(settled(max_norm), norm)));
}

/// What `adamw_element` and others take as s. `stored_norm` is the norm of the gradients as they
/// lie in memory, still multiplied by the loss scale; with no loss scale the inverse is 1.
inline float gradient_scale(float inverse_loss_scale, float stored_norm, float max_norm) {
  float_environment const environment;
  float const inverse = settled(inverse_loss_scale);
  float const factor = clip_factor(settled(product(inverse, stored_norm)), max_norm);
  return settled(canonical(product(inverse, factor)));
}

}  // namespace protrain::inline v0::optim
