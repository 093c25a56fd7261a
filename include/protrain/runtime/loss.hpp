// SPDX-License-Identifier: Apache-2.0
#pragma once
// From per-sample losses to the loss of a step, and the factor that gradients are scaled by. A
// plain training loop uses the same two functions.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <span>
#include <vector>

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

/// Appends per-sample losses in global sample order: micro-batches, ranks in each, samples of each.
/// `gathered` holds every rank's, by micro-batch.
inline void add_losses(std::vector<float>& out,
                       float const* gathered,
                       std::uint64_t micro_batches,
                       std::uint64_t ranks,
                       std::uint64_t samples) {
  for (std::uint64_t m = 0; m < micro_batches; ++m) {
    for (std::uint64_t r = 0; r < ranks; ++r) {
      float const* const from = gathered + (r * micro_batches + m) * samples;
      out.insert(out.end(), from, from + samples);
    }
  }
}

/// What a loss head multiplies its gradient by: the job's loss scale, a power of two, over the target
/// tokens of the whole step.
inline float loss_scale(std::uint64_t weight, float job_scale = 1.0F) noexcept {
  return weight == 0
             ? 0.0F
             : static_cast<float>(static_cast<double>(job_scale) / static_cast<double>(weight));
}

}  // namespace protrain::inline v0::runtime
