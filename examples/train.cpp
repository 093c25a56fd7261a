// SPDX-License-Identifier: Apache-2.0
// Trains a GPT-2 or a LLaMA on bytes within a memory budget, on a device made of host memory; or the
// same job by a plain loop, to compare bits.

#include "examples/cli/flags.hpp"
#include "examples/cli/loop.hpp"
#include "examples/cli/model.hpp"
#include "examples/cli/options.hpp"
#include "examples/cli/planning.hpp"
#include "examples/cli/program.hpp"
#include "examples/cli/run_files.hpp"
#include "examples/cli/runfiles.hpp"
#include "examples/transformer/plain.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/file.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/profile/measure.hpp"
#include "protrain/report/format.hpp"
#include "protrain/report/memory_table.hpp"
#include "protrain/report/plan_summary.hpp"
#include "protrain/report/stall_dump.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/engine_options.hpp"
#include "protrain/runtime/stall.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace {

using protrain::space;

std::vector<std::string_view> const dtypes{"fp32", "bf16"};

/// Everything that is decided before the first step.
struct setup {
  cli::training_task task;
  cli::built_model model;
  cli::planning planning;
  protrain::io::text_data text;
  std::uint64_t steps = 20;
  double learning_rate = 1e-3;
  std::uint32_t threads = 0;  ///< of each rank's CPU work; 0 = as the machine has it
  double stall_after = 0;
  std::unique_ptr<protrain::io::step_log> log{};
};

/// The closing lines of any run.
template <class Read>
int finish(setup const& s, cli::loop_result const& r, Read const& read) {
  using protrain::report::fixed;
  std::printf("done        %llu steps, %llu tokens in %s s: %s tokens/s, %s ms a step\n",
              static_cast<unsigned long long>(r.steps),
              static_cast<unsigned long long>(r.tokens),
              fixed(r.seconds, 3).c_str(),
              fixed(static_cast<double>(r.tokens) / r.seconds, 1).c_str(),
              fixed(1e3 * r.seconds / static_cast<double>(r.steps), 3).c_str());
  cli::bit_hash parameters;
  for (std::size_t i = 0; i < s.planning.facts.parameters.size(); ++i) {
    parameters.add(read(protrain::make_id<protrain::parameter_id>(i)));
  }
  std::printf("bits        losses %016llx norms %016llx parameters %016llx\n",
              static_cast<unsigned long long>(r.losses.value()),
              static_cast<unsigned long long>(r.norms.value()),
              static_cast<unsigned long long>(parameters.value()));
  if (r.interrupted) {
    std::fprintf(stderr,
                 "train: interrupted: stopped cleanly after step %llu of %llu\n",
                 static_cast<unsigned long long>(r.steps),
                 static_cast<unsigned long long>(s.steps));
    return 130;
  }
  return 0;
}

protrain::io::step_record record_of(protrain::runtime::step_result const& r) {
  return {.step = r.step,
          .loss = r.loss,
          .grad_norm = r.grad_norm,
          .grad_norm_clipped = r.grad_norm_clipped,
          .tokens = r.tokens,
          .seconds = r.seconds,
          .skipped = r.skipped};
}

int train_plain(setup& s) {
  transformer::plain_trainer trainer(s.model.table, s.task.job);
  trainer.initialise(cli::initial_values(s.task.config, s.task.job.seed));
  // The micro-batches of all ranks, one after the other.
  protrain::model::job all = s.task.job;
  all.accumulate *= all.world;
  all.world = 1;
  auto const result = cli::run_steps(
      all,
      s.text,
      s.steps,
      s.log.get(),
      [&](protrain::runtime::batch const& data) {
        auto const start = std::chrono::steady_clock::now();
        auto out = record_of(trainer.step(data, {.learning_rate = s.learning_rate}));
        out.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        return out;
      },
      [] { return cli::interrupted(); });
  return finish(s, result, [&](protrain::parameter_id id) { return trainer.read(id); });
}

template <class Engine>
protrain::io::memory_record memory_record_of(Engine const& engine) {
  auto const measured = engine.measured(space::device);
  auto const predicted = engine.predicted(space::device);
  return {.device_peak = measured.peak,
          .device_peak_predicted = predicted.peak,
          .host_pinned = engine.measured(space::host).peak,
          .measured = {measured.at_peak, measured.maximum},
          .predicted = {predicted.at_peak, predicted.maximum}};
}

template <class Engine>
bool agree_on_memory(Engine const& engine) {
  return protrain::report::agree(engine.predicted(space::device), engine.measured(space::device)) &&
         protrain::report::agree(engine.predicted(space::host), engine.measured(space::host));
}

/// Prints both tables; 3 if prediction and count differ anywhere.
template <class Engine>
int compare_memory(Engine const& engine) {
  int code = 0;
  for (space const where : {space::device, space::host}) {
    auto const measured = engine.measured(where);
    auto const predicted = engine.predicted(where);
    std::printf("\n%s", protrain::report::memory_table(where, predicted, &measured).c_str());
    if (!protrain::report::agree(predicted, measured)) {
      std::fprintf(stderr,
                   "train: the %s memory that the device counted is not what the plan predicted "
                   "(peaks %llu and %llu bytes): this is a fault of the library\n",
                   std::string(name_of(where)).c_str(),
                   static_cast<unsigned long long>(measured.peak),
                   static_cast<unsigned long long>(predicted.peak));
      code = 3;
    }
  }
  return code;
}

/// Prints what a step hangs on.
void print_stall(void* context, protrain::runtime::stall const& what) {
  auto const& s = *static_cast<setup const*>(context);
  std::fprintf(stderr, "%s", protrain::report::stall_dump(what, s.planning.facts).c_str());
}

/// A step of `engine`. What hangs can't be ended but with the program.
template <class Engine>
protrain::io::step_record step_of(Engine& engine,
                                  protrain::runtime::batch const& data,
                                  double learning_rate) {
  try {
    return record_of(engine.step(data, {.learning_rate = learning_rate}));
  } catch (protrain::runtime::stall_error const& e) {
    if (engine.hangs()) {
      std::fprintf(stderr, "train: failed: %s\n", e.what());
      std::_Exit(3);
    }
    throw;
  }
}

/// Trains as one rank and, on rank 0, says how it went. The ranks stop together.
template <class Device, class Comm>
int train_rank(setup& s, Device& device, Comm& comm, protrain::plan::plan const& plan) {
  protrain::runtime::engine engine(
      device,
      comm,
      s.model.table,
      protrain::runtime::parts_of(plan),
      protrain::optim::adamw{},
      {.threads = s.threads, .stall_after = s.stall_after, .on_stall = {&s, print_stall}});
  engine.initialise(cli::initial_values(s.task.config, s.task.job.seed));
  auto const result = cli::run_steps(
      s.task.job,
      s.text,
      s.steps,
      s.log.get(),
      [&](protrain::runtime::batch const& data) {
        auto out = step_of(engine, data, s.learning_rate);
        out.memory = memory_record_of(engine);
        return out;
      },
      [&] { return comm.sum(cli::interrupted() ? 1 : 0) > 0; },
      comm.rank());
  auto const read = [&](protrain::parameter_id id) { return engine.read(id); };
  if (comm.rank() > 0) {
    for (std::size_t i = 0; i < s.planning.facts.parameters.size(); ++i) {
      (void)read(protrain::make_id<protrain::parameter_id>(i));
    }
    return agree_on_memory(engine) ? 0 : 3;
  }
  int const code = finish(s, result, read);
  int const memory = compare_memory(engine);
  return memory != 0 ? memory : code;
}

/// Every rank on a thread of its own, with a device of its own. Rethrows the failure that came
/// first: what the other ranks say is that they were aborted.
template <class MakeDevice>
int train_ranks(setup& s, MakeDevice const& make_device, protrain::plan::plan const& plan) {
  auto const ranks = static_cast<std::uint32_t>(s.task.job.world);
  protrain::comm::thread_group group(ranks);
  std::vector<int> codes(ranks, 0);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      protrain::comm::threads comm(group, r);
      try {
        auto const device = make_device();
        codes[r] = train_rank(s, *device, comm, plan);
      } catch (std::exception const& e) {
        failures[r] = std::current_exception();
        comm.abort(e.what());
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  std::exception_ptr aborted;
  for (std::exception_ptr const& f : failures) {
    try {
      if (f) {
        std::rethrow_exception(f);
      }
    } catch (protrain::comm::comm_error const&) {
      aborted = f;
    }
  }
  if (aborted) {
    std::rethrow_exception(aborted);
  }
  return std::ranges::max(codes);
}

template <class MakeDevice>
int train_planned(setup& s, MakeDevice const& make_device, protrain::plan::plan const& plan) {
  if (s.task.job.world > 1) {
    return train_ranks(s, make_device, plan);
  }
  auto const device = make_device();
  protrain::comm::self comm;
  return train_rank(s, *device, comm, plan);
}

int train_on(setup& s, std::string const& device, protrain::plan::plan const& plan) {
  cli::planning const& p = s.planning;
  std::array<std::uint64_t, 2> const limit{
      p.budget.gpu.value, protrain::plan::allowance_of(p.budget, p.facts, p.machine).host};
  if (device == "serial") {
    using protrain::device::serial_device;
    return train_planned(
        s,
        [&] {
          return std::make_unique<serial_device>(protrain::device::serial_options{.limit = limit});
        },
        plan);
  }
  protrain::hw::machine const& m = p.machine;
  protrain::device::host_options const options{.h2d = {m.host_to_device, m.copy_latency},
                                               .d2h = {m.device_to_host, m.copy_latency},
                                               .limit = limit};
  return train_planned(
      s, [&] { return std::make_unique<protrain::device::host_device>(options); }, plan);
}

void declare(cli::flags& f) {
  cli::add_task_flags(f, dtypes);
  f.add("text", "FILE", "this repository", "what to learn, as bytes")
      .add("device", "host|serial", "host", "threads at the rates of host-demo, or one thread")
      .add("steps", "N", "20", "optimizer steps")
      .add("lr", "X", "1e-3", "learning rate")
      .add("threads",
           "N",
           "a rank's share",
           "of the CPU optimizer of each rank; no bit depends on it");
  cli::add_budget_flags(f);
  cli::add_plan_flag(f);
  f.add("stall-after", "SECONDS", "0", "give up when nothing moves for so long; 0 means never")
      .add("log", "FILE", "", "write a line of JSON per step, and FILE.meta.json")
      .add_switch("profile", "plan with times that the blocks take here, not with host-demo's")
      .add_switch("plain", "train by a plain loop instead: no plan, no budget, the same bits")
      .add_switch("help", "print this");
}

/// The blocks' times on the device that will run them, with the first batch of rank 0. Where not
/// even one block fits, no plan does: the search says what is short.
protrain::trace::trace measured(setup const& s, std::string const& device) {
  if (protrain::profile::device_need(s.model.table, s.task.job) > s.planning.budget.gpu) {
    return s.planning.facts;
  }
  cli::step_data data(s.task.job);
  auto const batch = data.fill(s.text, 1);
  std::array<std::uint64_t, 2> const limit{s.planning.budget.gpu.value, 0};
  if (device == "serial") {
    protrain::device::serial_device serial({.limit = limit});
    return protrain::profile::measure(serial, s.model.table, s.task.job, batch);
  }
  protrain::device::host_device host({.limit = limit});
  return protrain::profile::measure(host, s.model.table, s.task.job, batch);
}

setup read_setup(cli::flags const& f, cli::runfiles const& files) {
  cli::training_task task = cli::read_task(f, dtypes, files, protrain::hw::host_demo());
  std::uint64_t const vocabulary = vocabulary_of(task.config);
  if (vocabulary < 256) {
    throw cli::usage_error("--model " + cli::quote(task.model) + ": vocab_size is " +
                           std::to_string(vocabulary) + ", text is bytes and needs at least 256");
  }
  protrain::hw::machine const machine = protrain::hw::host_demo();
  cli::built_model model = cli::build_model(task.config, task.job);
  cli::planning planning{.model_type = std::string(type_name(task.config)),
                         .facts = protrain::profile::dry_run(model.table, task.job, machine),
                         .machine = machine,
                         .budget = cli::read_budget(f, machine, task.job.world)};
  auto text = cli::read_text(f, files, task.job.sequence);
  setup s{.task = std::move(task),
          .model = std::move(model),
          .planning = std::move(planning),
          .text = std::move(text)};
  s.steps = f.integer("steps", 20, 1, 1'000'000'000);
  s.learning_rate = f.number("lr", 1e-3, 0, 1e6, "from 0 to 1e6");
  s.threads = static_cast<std::uint32_t>(f.integer("threads", 0, 1, 1024));
  s.stall_after = f.number("stall-after", 0, 0, 1e6, "of seconds from 0 to 1e6; 0 means never");
  return s;
}

int run(int count, char** words) {
  cli::runfiles const files(words[0]);
  cli::enter_working_folder();
  cli::flags f(
      "Usage: train [FLAGS]\n\nTrains a GPT-2 or a LLaMA on bytes within a memory budget.");
  declare(f);
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  std::string const device = f.choice("device", "host", {"host", "serial"});
  bool const plain = f.given("plain");
  setup s = read_setup(f, files);
  if (f.given("profile")) {
    s.planning.facts = measured(s, device);
  }
  cli::watch_interrupt();
  std::string const job = cli::describe(s.task.model, s.planning.facts);
  std::printf("job         %s\n", job.c_str());
  std::printf("text        %s: %s\n",
              f.text("text").value_or(cli::default_text).c_str(),
              protrain::report::human_bytes(s.text.size()).c_str());
  auto const wanted = cli::read_request(f, s.planning);
  std::optional<protrain::plan::plan> plan;
  if (plain) {
    std::printf("plan        none: a plain loop, to which plan, device and budgets don't apply\n");
  } else {
    auto found = cli::make_plan(s.planning, wanted);
    if (!found) {
      std::fprintf(
          stderr, "train: %s\n", cli::shortage(s.planning, wanted, found.failure()).c_str());
      return 2;
    }
    plan = std::move(found).value();
    std::printf("%s", protrain::report::plan_summary(*plan).c_str());
  }
  std::fflush(stdout);
  if (f.given("log")) {
    s.log = cli::open_log(f,
                          {.task = s.task,
                           .facts = s.planning.facts,
                           .text = s.text,
                           .device = plain ? "plain" : device,
                           .plan = plan ? std::string(plan->string().view()) : "",
                           .steps = s.steps,
                           .learning_rate = s.learning_rate});
  }
  return plain ? train_plain(s) : train_on(s, device, *plan);
}

}  // namespace

int main(int count, char** words) { return cli::run_program("train", run, count, words); }
