// SPDX-License-Identifier: Apache-2.0
// Plans one job twice, with the default policies and with a bundle of one's own, and prints both
// predictions side by side.

#include "examples/cli/flags.hpp"
#include "examples/cli/model.hpp"
#include "examples/cli/options.hpp"
#include "examples/cli/planning.hpp"
#include "examples/cli/program.hpp"
#include "examples/cli/runfiles.hpp"
#include "examples/custom_policy/most_used_first.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/report/format.hpp"

#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace {

namespace plan = protrain::plan;
using answer = protrain::result<plan::plan, plan::infeasible>;

std::vector<std::string_view> const dtypes{"bf16", "fp32"};

void print(char const* name, answer const& found) {
  if (!found) {
    std::printf("%-8s %s\n", name, std::string(found.failure().explanation().view()).c_str());
    return;
  }
  plan::prediction const& p = found->predicted;
  std::printf("%-8s %s a step, %s on the device, %s on the host\n         %s\n",
              name,
              protrain::report::human_time(p.iteration).c_str(),
              protrain::report::human_bytes(p.device.peak).c_str(),
              protrain::report::human_bytes(p.host.peak).c_str(),
              std::string(found->string().view()).c_str());
}

int run(int count, char** words) {
  cli::runfiles const files(words[0]);
  cli::enter_working_folder();
  cli::flags f(
      "Usage: custom_policy [FLAGS]\n\nPlans a job with the default policies, and with a placement "
      "of one's own and Belady's eviction.");
  f.add("machine", "NAME|FILE", "host-demo", "a preset, or a JSON file");
  cli::add_task_flags(f, dtypes);
  cli::add_budget_flags(f);
  f.add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  protrain::hw::machine const machine = cli::read_machine(f, "host-demo");
  cli::training_task const task = cli::read_task(f, dtypes, files, machine);
  cli::built_model const model = cli::build_model(task.config, task.job);
  cli::planning const p{.model_type = std::string(type_name(task.config)),
                        .facts = protrain::profile::dry_run(model.table, task.job, machine),
                        .machine = machine,
                        .budget = cli::read_budget(f, machine, task.job.world)};

  auto const bundle = protrain::policies<>{}
                          .with(custom::most_used_first{})
                          .with(protrain::chunk::furthest_next_use{});
  answer const usual = cli::make_plan(p, {});
  answer const mine = plan::search(p.facts, p.machine, p.budget, bundle);
  print("default", usual);
  print("custom", mine);
  return usual || mine ? 0 : 2;
}

}  // namespace

int main(int count, char** words) { return cli::run_program("custom_policy", run, count, words); }
