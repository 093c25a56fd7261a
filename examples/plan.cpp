// SPDX-License-Identifier: Apache-2.0
// Plans a training job without running it: no tensor is allocated, any machine can be named.

#include "protrain/plan/plan.hpp"

#include "examples/cli/flags.hpp"
#include "examples/cli/model.hpp"
#include "examples/cli/options.hpp"
#include "examples/cli/part.hpp"
#include "examples/cli/planning.hpp"
#include "examples/cli/program.hpp"
#include "examples/cli/runfiles.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/config.hpp"
#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"
#include "protrain/model/config.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/operations.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/report/comparison_table.hpp"
#include "protrain/report/memory_table.hpp"
#include "protrain/report/micro_batch_table.hpp"
#include "protrain/report/plan_summary.hpp"
#include "protrain/trace/analytic.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace {

std::vector<std::string_view> const dtypes{"bf16", "fp32"};

/// The operators' times on a machine that isn't there, or the blocks that `train` runs.
enum class facts : std::uint8_t { blocks, analytic };

/// Flags that only an analytic trace listens to.
constexpr std::array analytic_flags{
    "attention", "logit-chunks", "trainable", "lora-rank", "lora-targets"};

/// The blocks that `train` would run, if there are any: some of what planning takes nobody has written.
std::optional<protrain::model::config> written(cli::model_task const& task) {
  using protrain::model::family;
  if (task.shape.type != family::gpt2 && task.shape.type != family::llama) {
    return {};
  }
  try {
    return protrain::io::read_config(task.file, task.shape.dropout);
  } catch (protrain::io::input_error const&) {
    return {};
  }
}

facts read_facts(cli::flags const& f, cli::model_task const& task, protrain::hw::machine const& m) {
  bool const asked = std::ranges::any_of(analytic_flags, [&](auto name) { return f.given(name); });
  bool const here = !asked && m.name == protrain::hw::host_demo().name && written(task);
  std::string const wanted =
      f.choice("trace", here ? "blocks" : "analytic", {"blocks", "analytic"});
  if (wanted == "analytic") {
    if (task.job.debug) {
      throw cli::usage_error(
          "--debug: guards blocks, and an analytic trace has none; leave it out");
    }
    return facts::analytic;
  }
  for (char const* const style : analytic_flags) {
    if (f.given(style)) {
      f.refuse(style, "is for --trace analytic; blocks are as they are written");
    }
  }
  return facts::blocks;
}

bool eager(cli::flags const& f) {
  return f.choice("attention", "fused", {"eager", "fused"}) == "eager";
}

/// Whether attention holds all pairs of tokens, or may: what sizes are checked by.
bool writes_pairs(cli::flags const& f) { return eager(f) || f.text("trace") == "blocks"; }

protrain::trace::trace make_trace(cli::flags const& f,
                                  cli::model_task const& task,
                                  protrain::hw::machine const& m) {
  if (read_facts(f, task, m) == facts::blocks) {
    auto const config = protrain::io::read_config(task.file, task.shape.dropout);
    return protrain::profile::dry_run(cli::build_model(config, task.job).table, task.job, m);
  }
  using protrain::model::attention_kind;
  return protrain::trace::analytic(
      task.shape,
      task.job,
      m,
      {.attention = eager(f) ? attention_kind::eager : attention_kind::fused,
       .logit_chunks = f.integer("logit-chunks", 1, 1, std::uint64_t{1} << 20U)},
      cli::read_parameters(f, task.shape, task.job.type));
}

void print_tables(protrain::plan::micro_batch_answer const& best, cli::comparison const& beside) {
  if (!best.seen.empty()) {
    std::printf("%s", protrain::report::micro_batch_table(best).c_str());
  }
  if (!beside.empty()) {
    std::printf("%s", protrain::report::comparison_table(beside).c_str());
  }
}

void print_plan(std::string const& model,
                cli::planning const& p,
                protrain::plan::request const& wanted,
                protrain::plan::plan const& found) {
  std::string const job = cli::describe(model, p.facts);
  std::printf("job         %s\n", job.c_str());
  std::printf("trace       %s\n",
              p.facts.from == protrain::trace::source::analytic
                  ? "analytic: operators on a roofline, nothing measured"
                  : "blocks: bytes as train holds them, times by one rate, nothing measured");
  std::printf("machine     %s (%s)\n",
              std::string(p.machine.name.view()).c_str(),
              std::string(p.machine.source.view()).c_str());
  std::printf("%s", protrain::report::plan_summary(found).c_str());
  std::printf("%s", cli::sensitivity_lines(p, wanted, found).c_str());
  std::printf("%s\n", cli::knob_lines(p, found).c_str());
  for (protrain::space const s : {protrain::space::device, protrain::space::host}) {
    auto const& memory =
        s == protrain::space::device ? found.predicted.device : found.predicted.host;
    std::printf("%s\n", protrain::report::memory_table(s, memory).c_str());
  }
  std::printf("%s", cli::filled_lines(p, found).c_str());
}

/// The plan for the size that is given; with auto, for the best of those that were looked at.
protrain::plan::micro_batch_answer answer(cli::flags const& f,
                                          cli::model_task const& task,
                                          cli::planning& p,
                                          protrain::plan::request const& wanted) {
  if (!cli::wants_best_micro_batch(f)) {
    return {.micro_batch = task.job.micro_batch, .found = cli::make_plan(p, wanted)};
  }
  auto const facts = [&](std::uint64_t micro_batch) {
    cli::model_task sized = task;
    sized.job.micro_batch = micro_batch;
    return make_trace(f, sized, p.machine);
  };
  return cli::find_micro_batch(
      p, wanted, facts, cli::most_micro_batch(task, p.machine, writes_pairs(f)));
}

int run(int count, char** words) {
  cli::runfiles const files(words[0]);
  cli::enter_working_folder();
  cli::flags f("Usage: plan [FLAGS]\n\nPlans a training job for a machine without running it.");
  f.add("machine", "NAME|FILE", "host-demo", "a preset, or a JSON file");
  cli::add_task_flags(f, dtypes, cli::micro_batches::searched);
  cli::add_budget_flags(f);
  cli::add_plan_flag(f);
  f.add("trace",
        "blocks|analytic",
        "as fits",
        "blocks as train runs them (by default on host-demo), or operators on a roofline")
      .add("attention", "eager|fused", "fused", "of an analytic trace")
      .add("logit-chunks", "N", "1", "of an analytic trace: more are made twice, and not kept");
  cli::add_part_flags(f);
  f.add("perfetto", "FILE", "none", "write the simulated timeline, which ui.perfetto.dev opens");
  f.add_switch("compare", "also what offloading, checkpointing or keeping all would do")
      .add_switch("holders", "say who holds the memory at its peak, or lacks it")
      .add_switch("json", "print one JSON object")
      .add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  protrain::hw::machine const machine = cli::read_machine(f, "host-demo");
  cli::model_task const task = cli::read_model_task(f, dtypes, files, machine, writes_pairs(f));
  cli::planning p{.model_type = std::string(name_of(task.shape.type)),
                  .facts = make_trace(f, task, machine),
                  .machine = machine,
                  .budget = cli::read_budget(f, machine, task.job.world)};
  auto const wanted = cli::read_request(f, p);
  auto const best = answer(f, task, p, wanted);
  auto const& found = best.found;
  if (auto const& file = f.text("perfetto"); found && file) {
    protrain::io::write_file(*file, cli::timeline_json(p, *found));
  }
  cli::comparison const beside = f.given("compare") ? cli::compare(p) : cli::comparison{};
  if (f.given("json")) {
    std::printf("%s\n", cli::plan_json(p, wanted, found, beside, best.seen).c_str());
  } else {
    print_tables(best, beside);
  }
  if (!found) {
    std::fprintf(stderr, "plan: %s\n", cli::shortage(p, wanted, found.failure()).c_str());
    if (f.given("holders")) {
      std::fprintf(stderr, "%s", cli::holders(p, found).c_str());
    }
    return 2;
  }
  if (!f.given("json")) {
    print_plan(task.model, p, wanted, *found);
    if (f.given("holders")) {
      std::printf("%s", cli::holders(p, found).c_str());
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) { return cli::run_program("plan", run, count, words); }
