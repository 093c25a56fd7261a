// SPDX-License-Identifier: Apache-2.0
#pragma once
// The ways to plan that predictions are made by.

#include "examples/paper/facts.hpp"
#include "examples/paper/predict.hpp"
#include "protrain/core/result.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/operations.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/micro_batch.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <string_view>

namespace paper {

enum class bundle : std::uint8_t {
  ours,   ///< the library's default policies
  theirs  ///< those that the paper describes
};

struct way {
  std::string_view name;
  bundle rules;
  protrain::model::attention_kind attention;
};
inline constexpr way ours{"ours", bundle::ours, protrain::model::attention_kind::eager};
inline constexpr way ours_fused{
    "ours, fused attention", bundle::ours, protrain::model::attention_kind::fused};
inline constexpr way theirs{
    "paper's policies", bundle::theirs, protrain::model::attention_kind::eager};

/// A preset.
protrain::hw::machine machine_named(std::string_view name);

/// A rank for each GPU, bf16 with 12 bytes of state a parameter, no clipping, no accumulation.
protrain::trace::trace make_facts(way const& w,
                                  protrain::model::decoder_config const& shape,
                                  protrain::hw::machine const& m,
                                  std::uint64_t micro_batch);

/// Within all the memory that the machine has.
protrain::result<protrain::plan::plan, protrain::plan::infeasible> make_plan(
    way const& w,
    protrain::trace::trace const& facts,
    protrain::hw::machine const& m,
    protrain::plan::request const& wanted,
    options const& o);
protrain::plan::micro_batch_answer best_micro_batch(way const& w,
                                                    protrain::model::decoder_config const& shape,
                                                    protrain::hw::machine const& m,
                                                    options const& o);

double tokens_per_second(protrain::plan::plan const& p);

}  // namespace paper
