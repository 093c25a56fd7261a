// SPDX-License-Identifier: Apache-2.0
#pragma once
// Makes the paper's tables from the planner: one set of rules and constants for all rows.

#include "examples/paper/table.hpp"
#include "protrain/plan/limits.hpp"

#include <functional>
#include <string>
#include <vector>

namespace paper {

struct options {
  protrain::plan::limits limits{};
  std::function<void(std::string const&)> progress = [](std::string const&) {};
};

/// The largest GPT-2 that trains.
table predict_table2(options const& o);
/// Tokens per second.
table predict_table3(options const& o);
/// What is chosen.
table predict_table4(options const& o);
/// What parts of the method are worth: at the best micro-batch, and at each of a few.
std::vector<table> predict_ablation(options const& o);

}  // namespace paper
