// SPDX-License-Identifier: Apache-2.0
#pragma once
// The numbers of one AdamW step, which scalar and vector loops share.

#include "protrain/core/config.hpp"
#include "protrain/core/strict_math.hpp"

namespace protrain::inline v0::optim {

/// The numbers of one step, as kernels take them.
struct adamw_step {
  float a = 0;  // lr / (1 - beta1^t)
  float r = 0;  // 1 / sqrt(1 - beta2^t)
  float k = 1;  // 1 - lr * weight_decay
  float b1 = 0;
  float one_minus_b1 = 1;
  float b2 = 0;
  float one_minus_b2 = 1;
  float eps = 0;

  bool operator==(adamw_step const&) const = default;
};

}  // namespace protrain::inline v0::optim
