// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a block says about itself before anything runs: parameters, boundary, batch tensors.

#include "protrain/block/entry.hpp"
#include "protrain/block/error.hpp"
#include "protrain/model/job.hpp"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::block {

struct parameter_options {
  bool trainable = true;
  bool decay = true;  ///< weight decay applies
  /// Its group's factor on the step's learning rate. 0 stops the parameter but not its moments;
  /// `trainable = false` saves the memory as well. That of a tied one is its first block's.
  float learning_rate_scale = 1;
  std::string_view tied{};      ///< full name of the parameter of an earlier block that this one is
  std::optional<dtype> type{};  ///< the job's unless given
};

struct level_options {
  bool reads_input = true;               ///< the rebuild reads x
  std::optional<std::uint64_t> flops{};  ///< of the rebuild, for analytic times
};

/// A parameter as declared, before ties are resolved.
struct declared_parameter {
  std::string name{};
  tensor_facts facts{};
  bool trainable = true;
  bool decay = true;
  float learning_rate_scale = 1;
  std::string tied{};
  bool operator==(declared_parameter const&) const = default;
};

/// Everything one call of `describe` said.
struct description {
  std::string name{};
  std::vector<declared_parameter> parameters{};
  std::vector<batch_tensor> batch{};
  std::optional<tensor_facts> input{};
  std::optional<tensor_facts> output{};
  bool reads_input = true;
  std::optional<std::uint64_t> flops{};
  std::vector<entry_level> levels{};
};

/// Passed to `describe`, once per layer of a repeat; every layer must declare the same names in the
/// same order, since the handles a block keeps are positions.
class block_builder {
 public:
  /// `job` and `into` must outlive the builder.
  block_builder(model::job const& job, std::uint32_t layer, description& into)
      : job_(&job), layer_(layer), out_(&into) {}

  /// Extents of the job are capacities: those of one micro-batch.
  model::job const& job() const noexcept { return *job_; }
  /// Position within the repeat; 0 outside one.
  std::uint32_t layer() const noexcept { return layer_; }

  /// How messages and reports call the block; a repeat's prefix says it otherwise.
  void name(std::string_view n) { out_->name = n; }

  /// Declares a parameter and returns the handle for `scope::value` and `scope::gradient`.
  parameter_ref parameter(std::string_view name,
                          extents const& shape,
                          parameter_options const& options = {}) {
    PROTRAIN_EXPECT(options.learning_rate_scale >= 0 &&
                        options.learning_rate_scale <= std::numeric_limits<float>::max(),
                    "a learning-rate scale is finite and not negative");
    out_->parameters.push_back({.name = std::string(name),
                                .facts = {options.type.value_or(job_->type), shape},
                                .trainable = options.trainable,
                                .decay = options.decay,
                                .learning_rate_scale = options.learning_rate_scale,
                                .tied = std::string(options.tied)});
    return {static_cast<std::uint32_t>(out_->parameters.size() - 1)};
  }

  /// Shape of x and dx for one micro-batch. The first block of a model has none.
  void input(extents const& shape, std::optional<dtype> type = {}) {
    out_->input = tensor_facts{type.value_or(job_->type), shape};
  }
  /// Shape of y and dy for one micro-batch. The last block of a model has none.
  void output(extents const& shape, std::optional<dtype> type = {}) {
    out_->output = tensor_facts{type.value_or(job_->type), shape};
  }

  /// Declares a tensor that comes with each micro-batch: constant, without gradient. Several blocks
  /// may name the same one.
  batch_ref batch(std::string_view name, dtype type, extents const& shape) {
    out_->batch.push_back({std::string(name), {type, shape}});
    return {static_cast<std::uint32_t>(out_->batch.size() - 1)};
  }

  /// Whether backward reads x (true unless said). If not, x may be gone by then and is passed
  /// absent.
  void reads_input(bool yes) { out_->reads_input = yes; }

  /// Declares a save level, each dropping more than the one before: `scope::save` names the first
  /// level at which its tensor is dropped, and the block's `rebuild(scope&, x)` makes it again. At
  /// level 0 everything is kept; what is left when even the deepest level keeps too much is to
  /// recompute the block from x.
  level_ref level(std::string_view name, level_options const& options = {}) {
    PROTRAIN_EXPECT(out_->levels.size() < trace::most_levels, "a block has at most four levels");
    out_->levels.push_back({std::string(name), options.reads_input, options.flops});
    return level_ref{static_cast<std::uint32_t>(out_->levels.size())};
  }

  /// Floating-point operations of one forward pass, for analytic times.
  void flops(std::uint64_t forward) { out_->flops = forward; }

 private:
  model::job const* job_;
  std::uint32_t layer_;
  description* out_;
};

}  // namespace protrain::inline v0::block
