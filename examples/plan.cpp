// SPDX-License-Identifier: Apache-2.0
// Plans a training job without running it: no tensor is allocated, any machine can be named.

#include "examples/cli/flags.hpp"
#include "examples/cli/model.hpp"
#include "examples/cli/options.hpp"
#include "examples/cli/planning.hpp"
#include "examples/cli/program.hpp"
#include "examples/cli/runfiles.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/report/memory_table.hpp"
#include "protrain/report/plan_summary.hpp"

#include <cstdio>
#include <string>

namespace {

std::vector<std::string_view> const dtypes{"bf16", "fp32"};

void print_plan(cli::training_task const& task,
                cli::planning const& p,
                protrain::plan::plan const& found) {
  std::string const job = cli::describe(task, p.facts);
  std::printf("job         %s\n", job.c_str());
  std::printf("machine     %s (%s)\n",
              std::string(p.machine.name.view()).c_str(),
              std::string(p.machine.source.view()).c_str());
  std::printf("%s", protrain::report::plan_summary(found).c_str());
  std::printf("sensitivity %s\n", cli::sensitivity_line(p, found).c_str());
  std::printf("%s\n", cli::knob_lines(p, found).c_str());
  for (protrain::space const s : {protrain::space::device, protrain::space::host}) {
    auto const& memory =
        s == protrain::space::device ? found.predicted.device : found.predicted.host;
    std::printf("%s\n", protrain::report::memory_table(s, memory).c_str());
  }
}

int run(int count, char** words) {
  cli::runfiles const files(words[0]);
  cli::enter_working_folder();
  cli::flags f("Usage: plan [FLAGS]\n\nPlans a training job for a machine without running it.");
  f.add("machine", "NAME|FILE", "host-demo", "a preset, or a JSON file");
  cli::add_task_flags(f, dtypes);
  cli::add_budget_flags(f);
  cli::add_plan_flag(f);
  f.add_switch("holders", "say who holds the memory at its peak, or lacks it")
      .add_switch("json", "print one JSON object")
      .add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  protrain::hw::machine const machine = cli::read_machine(f, "host-demo");
  cli::training_task const task = cli::read_task(f, dtypes, files, machine.devices);
  cli::built_model const model = cli::build_model(task.config, task.job);
  cli::planning const p{.model_type = std::string(type_name(task.config)),
                        .facts = protrain::profile::dry_run(model.table, task.job, machine),
                        .machine = machine,
                        .budget = cli::read_budget(f, machine, task.job.world)};
  auto const wanted = cli::read_request(f, p);
  auto const found = cli::make_plan(p, wanted);
  if (f.given("json")) {
    std::printf("%s\n", cli::plan_json(p, found).c_str());
  }
  if (!found) {
    std::fprintf(stderr, "plan: %s\n", cli::shortage(p, wanted, found.failure()).c_str());
    if (f.given("holders")) {
      std::fprintf(stderr, "%s", cli::holders(p, found).c_str());
    }
    return 2;
  }
  if (!f.given("json")) {
    print_plan(task, p, *found);
    if (f.given("holders")) {
      std::printf("%s", cli::holders(p, found).c_str());
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) { return cli::run_program("plan", run, count, words); }
