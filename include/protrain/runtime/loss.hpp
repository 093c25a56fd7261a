// SPDX-License-Identifier: Apache-2.0
#pragma once
// From per-sample losses to the loss of a step, and the factor that gradients are scaled by. A
// plain training loop uses the same two functions.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <span>

namespace protrain::inline v0::runtime {

/// Mean over `weight` target tokens of losses summed in global sample order, in fp64, rounded once
/// to fp32. 0 for a batch without targets.
inline float mean_loss(std::span<float const> per_sample, std::uint64_t weight) noexcept {
  double sum = 0;
  for (float const loss : per_sample) {
    sum += static_cast<double>(loss);
  }
  return weight == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(weight));
}

/// What a loss head multiplies its gradient by: the job's loss scale, a power of two, over the target
/// tokens of the whole step.
inline float loss_scale(std::uint64_t weight, float job_scale = 1.0F) noexcept {
  return weight == 0
             ? 0.0F
             : static_cast<float>(static_cast<double>(job_scale) / static_cast<double>(weight));
}

}  // namespace protrain::inline v0::runtime
