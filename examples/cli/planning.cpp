// SPDX-License-Identifier: Apache-2.0
// The search with the default policies, or with save levels where a plan names some, and its answers
// as text and JSON.

#include "examples/cli/planning.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/machine.hpp"
#include "protrain/io/plan.hpp"
#include "protrain/plan/effects.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/report/answers.hpp"
#include "protrain/report/knob_table.hpp"
#include "protrain/report/memory_dump.hpp"
#include "protrain/report/perfetto.hpp"
#include "protrain/report/shortage_dump.hpp"

#include <cstddef>
#include <filesystem>
#include <system_error>
#include <vector>

namespace cli {
namespace {

namespace io = protrain::io;
namespace plan = protrain::plan;

io::plan_subject subject(planning const& p) {
  return {
      .model_type = p.model_type, .machine = std::string(p.machine.name.view()), .facts = p.facts};
}

bool is_file(std::string const& name) {
  std::error_code none;
  return name.ends_with(".json") || std::filesystem::exists(name, none);
}

constexpr auto with_levels = plan::policies<>{}.with(protrain::activation::levels{});

bool names_levels(plan::request const& wanted) {
  return wanted.levels && *wanted.levels != plan::level_counts{};
}

/// A shortage of memory is an answer, anything else bad usage.
void check_allowed(protrain::result<plan::plan, plan::infeasible> const& found) {
  if (!found && !found.failure().lacks_memory()) {
    throw usage_error(std::string("--plan: ") + found.failure().reason + " (" +
                      std::to_string(found.failure().number) + ")");
  }
}

plan::explanation explanation(planning const& p,
                              plan::request const& wanted,
                              plan::plan const& found) {
  constexpr plan::limits few{.instructions = 1U
                                             << 17U};  // one search each, and no proof is printed
  return found.at.depth > 0
             ? plan::explain(found, p.machine, p.budget, with_levels, wanted, few)
             : plan::explain(found, p.machine, p.budget, plan::policies<>{}, wanted, few);
}

std::vector<plan::knob_effect> effects(planning const& p, plan::plan const& found) {
  return found.at.depth > 0 ? plan::effects(found, p.machine, with_levels)
                            : plan::effects(found, p.machine);
}

plan::memory_over_time filled(planning const& p, plan::plan const& found, std::size_t parts) {
  auto const step = found.at.depth > 0 ? plan::timed_step(found, p.machine, with_levels)
                                       : plan::timed_step(found, p.machine);
  return plan::memory_by_time(step.value(), parts);
}

}  // namespace

protrain::hw::machine read_machine(flags const& f, std::string const& fallback) {
  std::string const name = f.text("machine").value_or(fallback);
  if (auto const known = protrain::hw::preset(name)) {
    return *known;
  }
  if (is_file(name)) {
    return io::read_machine(name);
  }
  std::string all;
  for (std::string_view const each : protrain::hw::preset_names) {
    (all += each) += ", ";
  }
  f.refuse("machine", "must be one of " + all + "or a JSON file");
}

void add_plan_flag(flags& f) {
  f.add("plan",
        "PLAN",
        "auto",
        "auto, keep_all, offload_all, checkpoint_all, key=value,... or a file of plan --json");
}

plan::request read_request(flags const& f, planning const& p) {
  std::string const given = f.text("plan").value_or("auto");
  std::string string = given;
  if (is_file(given)) {
    if (f.text("micro-batch") == "auto") {
      f.refuse("plan", "is for one size of the micro-batch; leave out --micro-batch auto");
    }
    io::plan_file const file = io::read_plan(given);
    io::check_subject(file, given, subject(p));
    string = file.string;
  }
  auto const read = plan::parse(string, p.facts.job);
  if (!read) {
    f.refuse("plan", std::string(read.failure().message().view()));
  }
  return *read;
}

protrain::result<plan::plan, plan::infeasible> make_plan(planning const& p,
                                                         plan::request const& wanted) {
  auto found = names_levels(wanted)
                   ? plan::make(p.facts, p.machine, p.budget, with_levels, wanted)
                   : plan::make(p.facts, p.machine, p.budget, plan::policies<>{}, wanted);
  check_allowed(found);
  return found;
}

plan::micro_batch_answer find_micro_batch(
    planning& p,
    plan::request const& wanted,
    std::function<protrain::trace::trace(std::uint64_t)> const& facts,
    std::uint64_t most) {
  auto const search = [&](auto const& rules) {
    return plan::search_micro_batch(facts, p.machine, p.budget, rules, wanted, {}, {.most = most});
  };
  auto answer = names_levels(wanted) ? search(with_levels) : search(plan::policies<>{});
  check_allowed(answer.found);
  p.facts = answer.found ? answer.found->trace : facts(answer.micro_batch);
  return answer;
}

comparison compare(planning const& p) { return plan::compare(p.facts, p.machine, p.budget); }

std::string plan_json(planning const& p,
                      plan::request const& wanted,
                      protrain::result<plan::plan, plan::infeasible> const& found,
                      comparison const& beside,
                      std::vector<plan::micro_batch_seen> const& sizes) {
  constexpr std::size_t parts = 32;
  io::plan_subject const about = subject(p);
  io::json object = found ? io::to_json(about,
                                        *found,
                                        explanation(p, wanted, *found),
                                        effects(p, *found),
                                        filled(p, *found, parts))
                          : io::to_json(about, found.failure());
  if (!beside.empty()) {
    object["comparison"] = io::to_json(beside);
  }
  if (!sizes.empty()) {
    object["micro_batches"] = io::to_json(sizes);
  }
  return object.dump(2, ' ', false, io::json::error_handler_t::replace);
}

std::string timeline_json(planning const& p, plan::plan const& found) {
  auto const made = found.at.depth > 0 ? protrain::report::perfetto(found, p.machine, with_levels)
                                       : protrain::report::perfetto(found, p.machine);
  return made.value();
}

std::string sensitivity_lines(planning const& p,
                              plan::request const& wanted,
                              plan::plan const& found) {
  return protrain::report::sensitivity_lines(found, explanation(p, wanted, found));
}

std::string filled_lines(planning const& p, plan::plan const& found) {
  constexpr std::size_t parts = 12;
  return protrain::report::filled_lines(filled(p, found, parts));
}

std::string knob_lines(planning const& p, plan::plan const& found) {
  return protrain::report::knob_table(found, effects(p, found));
}

std::string holders(planning const& p,
                    protrain::result<plan::plan, plan::infeasible> const& found) {
  if (!found) {
    return protrain::report::shortage_dump(p.facts, p.machine, found.failure());
  }
  auto const programs = found->segments();
  std::string out;
  for (protrain::space const s : {protrain::space::device, protrain::space::host}) {
    out += programs ? protrain::report::memory_dump(*programs, p.facts, s) + "\n" : "";
  }
  return out;
}

std::string shortage(planning const& p, plan::request const& wanted, plan::infeasible const& f) {
  std::string out = "does not fit: " + std::string(f.explanation().view());
  if (wanted != plan::request{}) {
    if (auto const other = make_plan(p, {})) {
      out += "; within this budget --plan auto fits, as " + std::string(other->string().view());
    }
  }
  return out;
}

}  // namespace cli
