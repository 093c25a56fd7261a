// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shape of a GPT-2 as a value: what a configuration file says, and what blocks are built from.

#include "protrain/core/config.hpp"

#include <cstdint>

namespace protrain::inline v0::model {

/// Defaults are those of the smallest published GPT-2. `heads` divides `hidden`.
struct gpt2_config {
  std::uint64_t layers = 12;
  std::uint64_t hidden = 768;
  std::uint64_t heads = 12;
  std::uint64_t inner = 3072;  ///< channels of the MLP, as a rule 4 x hidden
  std::uint64_t vocabulary = 50257;
  std::uint64_t positions = 1024;  ///< longest sequence
  double dropout = 0.1;            ///< of embeddings, attention and residuals alike; below 1
  bool tied = true;                ///< the head projects with the token embedding
  double epsilon = 1e-5;           ///< of the norms
  double initializer_range = 0.02;
  bool operator==(gpt2_config const&) const = default;
};

}  // namespace protrain::inline v0::model
