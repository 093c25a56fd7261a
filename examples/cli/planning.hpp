// SPDX-License-Identifier: Apache-2.0
#pragma once
// Planning for the examples: the search is compiled once, for both programs.

#include "examples/cli/flags.hpp"
#include "protrain/core/result.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/compare.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/micro_batch.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace cli {

/// What there is to plan.
struct planning {
  std::string model_type;
  protrain::trace::trace facts;
  protrain::hw::machine machine;
  protrain::plan::budget budget;
};

/// A preset's name, or a file. Throws usage_error or protrain::io::input_error.
protrain::hw::machine read_machine(flags const& f, std::string const& fallback);

/// `--plan`: a plan string, or a file that `plan --json` wrote for the same job.
void add_plan_flag(flags& f);
protrain::plan::request read_request(flags const& f, planning const& p);

/// Throws usage_error where `wanted` isn't allowed; a shortage of memory is the result's failure.
protrain::result<protrain::plan::plan, protrain::plan::infeasible> make_plan(
    planning const& p, protrain::plan::request const& wanted);

/// The size of the micro-batch with the most tokens per second, from 1 to `most`, by the trace that
/// `facts` makes for each. `p.facts` becomes that of the answer. Throws as `make_plan`.
protrain::plan::micro_batch_answer find_micro_batch(
    planning& p,
    protrain::plan::request const& wanted,
    std::function<protrain::trace::trace(std::uint64_t)> const& facts,
    std::uint64_t most);

/// What fixed ways to train would do, beside the search's.
using comparison = std::vector<protrain::plan::contender>;
comparison compare(planning const& p);

/// The object of `plan --json` for what `wanted` made, with the comparison and the sizes that were
/// looked at if there are any.
std::string plan_json(
    planning const& p,
    protrain::plan::request const& wanted,
    protrain::result<protrain::plan::plan, protrain::plan::infeasible> const& found,
    comparison const& beside,
    std::vector<protrain::plan::micro_batch_seen> const& sizes);

/// The simulated timeline of a plan's step, for ui.perfetto.dev.
std::string timeline_json(planning const& p, protrain::plan::plan const& found);

/// Who holds the memory of a plan at its peaks, or lacks it.
std::string holders(
    planning const& p,
    protrain::result<protrain::plan::plan, protrain::plan::infeasible> const& found);

/// What more memory, more bandwidth and another rank would buy what `wanted` made, a line each.
std::string sensitivity_lines(planning const& p,
                              protrain::plan::request const& wanted,
                              protrain::plan::plan const& found);

/// How far memory is filled over a step.
std::string filled_lines(planning const& p, protrain::plan::plan const& found);

/// What each knob does to the time and the peaks, a line each.
std::string knob_lines(planning const& p, protrain::plan::plan const& found);

/// What is short and what would fit, as one line; where another plan fits, which.
std::string shortage(planning const& p,
                     protrain::plan::request const& wanted,
                     protrain::plan::infeasible const& f);

}  // namespace cli
