// SPDX-License-Identifier: Apache-2.0
#pragma once
// The examples' models: a GPT-2 or a LLaMA from a configuration, as a table of blocks for one job.

#include "protrain/block/entry.hpp"
#include "protrain/model/config.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/parameter.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace cli {

/// The table points into the blocks.
struct built_model {
  std::shared_ptr<void const> blocks;
  protrain::block::table table;
};

/// For an fp32 or bf16 job.
built_model build_model(protrain::model::config const& config, protrain::model::job const& job);

/// Fills a parameter's first values: a function of seed, name and element alone.
using loader = std::function<void(protrain::model::parameter const&, std::span<float>)>;
loader initial_values(protrain::model::config const& config, std::uint64_t seed);

}  // namespace cli
