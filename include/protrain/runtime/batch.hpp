// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a step takes and what it answers.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace protrain::inline v0::runtime {

/// The data of one step. Each tensor that the blocks named holds all micro-batches one after the
/// other; the caller keeps the memory until `step` returns.
class batch {
 public:
  struct tensor {
    std::string name;
    void const* data = nullptr;
    std::uint64_t bytes = 0;
  };

  /// `bytes` is the size of all micro-batches together.
  batch& add(std::string name, void const* data, std::uint64_t bytes) {
    tensors_.push_back({std::move(name), data, bytes});
    return *this;
  }
  /// Target tokens of the whole step on this rank: the losses of the step are averaged over them.
  batch& targets(std::uint64_t count) {
    targets_ = count;
    return *this;
  }

  std::vector<tensor> const& tensors() const noexcept { return tensors_; }
  std::uint64_t targets() const noexcept { return targets_; }

 private:
  std::vector<tensor> tensors_;
  std::uint64_t targets_ = 0;
};

/// What varies from step to step.
struct step_options {
  double learning_rate = 1e-3;
};

/// What a step answers. `grad_norm` is the norm before clipping.
struct step_result {
  std::uint64_t step = 0;  ///< counted from 1
  float loss = 0;          ///< mean over the target tokens of the global batch
  float grad_norm = 0;
  float grad_norm_clipped = 0;
  std::uint64_t tokens = 0;
  double seconds = 0;
  bool finite = true;    ///< the gradients
  bool skipped = false;  ///< no parameter changed: the job skips steps that aren't finite
};

/// The cell that norm_finish writes.
struct norm_report {
  float norm = 0;
  float clip_factor = 1;
  float scale = 1;
  std::uint32_t non_finite = 0;
};
static_assert(sizeof(norm_report) == 16);

}  // namespace protrain::inline v0::runtime
