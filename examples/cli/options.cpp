// SPDX-License-Identifier: Apache-2.0
// Reading the shared flags, and refusing what can't be a job.

#include "examples/cli/options.hpp"

#include "protrain/hw/presets.hpp"
#include "protrain/io/config.hpp"
#include "protrain/io/decoder.hpp"
#include "protrain/report/format.hpp"
#include "protrain/update/state_format.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <variant>

namespace cli {
namespace {

namespace hw = protrain::hw;
namespace model = protrain::model;

constexpr std::uint64_t most_samples = 1U << 20U;
constexpr std::array<model::state_format, 3> formats{model::state_format::fp32,
                                                     model::state_format::split_master,
                                                     model::state_format::separate_master};

std::string model_name(flags const& f) { return f.text("model").value_or("tiny-gpt2"); }

std::string model_file(flags const& f, runfiles const& files) {
  std::string const name = model_name(f);
  bool const built_in = name == "tiny-gpt2" || name == "tiny-llama";
  return built_in ? files.find("examples/models/" + name + ".json") : name;
}

protrain::dtype dtype_named(std::string_view name) {
  for (protrain::dtype const d :
       {protrain::dtype::f32, protrain::dtype::bf16, protrain::dtype::f16}) {
    if (name_of(d) == name) {
      return d;
    }
  }
  throw std::logic_error("a dtype without a name");
}

model::state_format read_state(flags const& f, protrain::dtype type) {
  model::state_format const fallback = model::default_state(type);
  std::string const name =
      f.choice("state",
               std::string(name_of(fallback)),
               {name_of(formats[0]), name_of(formats[1]), name_of(formats[2])});
  for (model::state_format const each : formats) {
    if (name_of(each) == name) {
      return each;
    }
  }
  return fallback;
}

/// 1 itself would drop everything.
double below_one(flags const& f, double fallback) {
  double const p = f.number("dropout", fallback, 0, 1, "of at least 0 and below 1; 0 means none");
  if (static_cast<float>(p) >= 1) {
    f.refuse("dropout", "must be a number of at least 0 and below 1; 0 means none");
  }
  return p;
}

/// A rough size in bytes of everything a step touches, in floating point: jobs whose exact sizes
/// could overflow are refused by it.
double rough_bytes(model::decoder_config const& c, model::job const& j, bool eager) {
  auto const real = [](std::uint64_t n) { return static_cast<double>(n); };
  double const saved = 16 * real(c.hidden) + 8 * real(c.query_width()) + 6 * real(c.inner) +
                       (eager ? 2 * real(j.sequence) * real(c.heads) : 0);
  double const rows = real(j.sequence) * real(j.micro_batch);
  return 16 * real(parameter_count(c)) +
         4 * rows * (saved * real(c.layers) * real(j.accumulate) + 2 * real(c.vocabulary));
}

bool too_large(model::decoder_config const& c, model::job const& j, bool eager) {
  return rough_bytes(c, j, eager) > 0x1p52;
}

void check_sizes(flags const& f, model::decoder_config const& c, model::job const& j, bool eager) {
  if (auto const bytes = protrain::update::bytes_of(j); !bytes) {
    std::string const reason = bytes.failure().what;
    f.given("state")
        ? f.refuse("state", reason)
        : throw usage_error("--dtype '" + std::string(name_of(j.type)) + "': " + reason);
  }
  if (too_large(c, j, eager)) {
    throw usage_error("--model " + quote(model_name(f)) +
                      ": the job moves more than 4 PiB a step; give a smaller --micro-batch, "
                      "--sequence or model");
  }
}

/// Rough operations of a step on one rank, with a second forward.
double rough_flops(model::decoder_config const& c, model::job const& j) {
  auto const real = [](std::uint64_t n) { return static_cast<double>(n); };
  double const rows = real(j.sequence) * real(j.micro_batch) * real(j.accumulate);
  double const pairs = 2 * real(j.sequence) * real(c.query_width()) * real(c.layers);
  return 8 * rows * (real(parameter_count(c)) + real(c.vocabulary) * real(c.embedding) + pairs);
}

/// The lowest rate that bytes of the job may move at, in bytes a second.
double lowest_rate(hw::machine const& m, model::job const& j) {
  double lowest = std::numeric_limits<double>::infinity();
  auto const see = [&](protrain::bandwidth rate) {
    if (rate.per_second > 0) {
      lowest = std::min(lowest, static_cast<double>(rate.per_second));
    }
  };
  hw::concurrent_rates const& c = m.concurrent;
  for (hw::copy_rates const& copies : {hw::copy_rates{m.host_to_device, m.device_to_host},
                                       c.both_ways,
                                       c.beside_compute,
                                       c.beside_update,
                                       hw::copies_of_rank(m, j.world)}) {
    see(copies.host_to_device);
    see(copies.device_to_host);
  }
  see(m.device_bandwidth);
  see(hw::share_of_rank(m, m.host_bandwidth, hw::local_ranks(m, j.world)));
  see(hw::share_of_rank(m, c.update_beside_copies, hw::local_ranks(m, j.world)));
  if (j.world > 1) {
    see({m.collective.per_second / 3 + 1});  // three queues may share it
  }
  return lowest;
}

/// Times are picoseconds in 64 bits, 213 days; operations have 64 bits, too. What is refused here
/// nobody would wait for.
bool too_long(model::decoder_config const& c,
              model::job const& j,
              hw::machine const& m,
              bool eager) {
  constexpr double longest = 100 * 86'400.0;
  double const flops = rough_flops(c, j);
  double const computing = flops / static_cast<double>(hw::compute_rate(m, j.type).per_second);
  double const moving = rough_bytes(c, j, eager) / lowest_rate(m, j);
  auto const programs = static_cast<double>(c.layers) * static_cast<double>(j.accumulate);
  // Where copies and collectives slow down, so do their latencies.
  auto const fastest =
      static_cast<double>(std::max({m.host_to_device, m.device_to_host, m.collective}).per_second);
  double const waiting = 20 * programs * (m.copy_latency + hw::collective_latency(m)).seconds() *
                         std::max(1.0, fastest / lowest_rate(m, j));
  return flops > 0x1p62 || computing + moving + waiting > longest;
}

void check_times(flags const& f,
                 model::decoder_config const& c,
                 model::job const& j,
                 hw::machine const& m,
                 bool eager) {
  if (too_long(c, j, m, eager)) {
    throw usage_error("--model " + quote(model_name(f)) + ": a step takes months on machine " +
                      quote(m.name.view()) +
                      "; give a smaller --micro-batch, --accumulate, --sequence or model, or a "
                      "faster --machine");
  }
}

std::optional<double> read_dropout(flags const& f) {
  return f.given("dropout") ? std::optional(below_one(f, 0)) : std::nullopt;
}

model::job read_job(flags const& f,
                    std::vector<std::string_view> const& dtypes,
                    model::decoder_config const& c,
                    hw::machine const& machine,
                    bool eager) {
  model::job j;
  j.type = dtype_named(f.choice("dtype", std::string(dtypes.front()), dtypes));
  j.state = read_state(f, j.type);
  j.micro_batch = wants_best_micro_batch(f) ? 1 : f.integer("micro-batch", 1, 1, most_samples);
  j.accumulate = f.integer("accumulate", 1, 1, 1U << 16U);
  j.world = f.integer("world", all_ranks(machine), 1, 1U << 16U);
  j.sequence = f.integer("sequence", c.positions, 1, c.positions);
  j.seed = f.integer("seed", 1, 0, std::numeric_limits<std::uint64_t>::max());
  j.clip = static_cast<float>(f.number("clip",
                                       0,
                                       0,
                                       static_cast<double>(std::numeric_limits<float>::max()),
                                       "of at least 0; 0 means no clipping"));
  j.dropout = static_cast<float>(c.dropout);
  j.debug = f.given("debug");
  check_sizes(f, c, j, eager);
  check_times(f, c, j, machine, eager);
  return j;
}

}  // namespace

void add_task_flags(flags& f, std::vector<std::string_view> const& dtypes, micro_batches sizes) {
  bool const searched = sizes == micro_batches::searched;
  std::string all;
  for (std::string_view const d : dtypes) {
    (all += all.empty() ? "" : "|") += d;
  }
  f.add("model", "FILE|tiny-gpt2|tiny-llama", "tiny-gpt2", "config.json, or a built-in one")
      .add("dtype", all, std::string(dtypes.front()), "of parameters, activations and gradients")
      .add("state", "FORMAT", "by dtype", "optimizer state: fp32, split_master, separate_master")
      .add("micro-batch",
           searched ? "N|auto" : "N",
           "1",
           searched ? "samples at a time; auto: the most tokens/s" : "samples at a time")
      .add("accumulate", "K", "1", "micro-batches per step and rank")
      .add("world", "W", "the machine's", "ranks")
      .add("sequence", "T", "the model's", "tokens per sample")
      .add("seed", "S", "1", "of initial values, data order and dropout")
      .add("clip", "X", "0", "largest gradient norm; 0 means no clipping")
      .add("dropout", "X", "the model's", "wherever the model has some; 0 means none")
      .add_switch("debug", "guard the memory of blocks: slower, more memory, the same bits");
}

training_task read_task(flags const& f,
                        std::vector<std::string_view> const& dtypes,
                        runfiles const& files,
                        hw::machine const& machine) {
  if (wants_best_micro_batch(f)) {
    f.refuse("micro-batch",
             "is a question for plan --micro-batch auto; give the number that it answers with");
  }
  training_task t{.model = model_name(f)};
  t.config = protrain::io::read_config(model_file(f, files), read_dropout(f));
  auto const shape = std::visit([](auto const& c) { return model::decoder_of(c); }, t.config);
  t.job = read_job(f, dtypes, shape, machine, true);
  return t;
}

model_task read_model_task(flags const& f,
                           std::vector<std::string_view> const& dtypes,
                           runfiles const& files,
                           hw::machine const& machine,
                           bool eager) {
  model_task t{.model = model_name(f), .file = model_file(f, files)};
  t.shape = protrain::io::read_decoder(t.file, read_dropout(f));
  t.job = read_job(f, dtypes, t.shape, machine, eager);
  return t;
}

bool wants_best_micro_batch(flags const& f) { return f.text("micro-batch") == "auto"; }

std::uint64_t most_micro_batch(model_task const& t, hw::machine const& m, bool eager) {
  model::job j = t.job;
  for (j.micro_batch = 2; j.micro_batch <= most_samples; j.micro_batch *= 2) {
    if (too_large(t.shape, j, eager) || too_long(t.shape, j, m, eager)) {
      break;
    }
  }
  return j.micro_batch / 2;
}

void add_budget_flags(flags& f) {
  f.add("gpu-memory", "SIZE", "the machine's", "device budget, as in 24GiB or 1.5GB")
      .add("host-memory", "SIZE", "the machine's", "host budget");
}

protrain::plan::budget read_budget(flags const& f,
                                   protrain::hw::machine const& m,
                                   std::uint64_t world) {
  // A plan knows how many ranks share a host, but takes the device made of host memory for one rank's.
  bool const demo = m.name == protrain::hw::host_demo().name;
  return {.gpu = {f.size("gpu-memory", m.device_memory.value)},
          .host = {f.size("host-memory", m.host_memory.value) / (demo ? world : 1)}};
}

std::string describe(std::string const& name, protrain::trace::trace const& facts) {
  std::uint64_t parameters = 0;
  for (model::parameter const& p : facts.parameters) {
    parameters += model::elements(p);
  }
  using protrain::report::human_count;
  model::job const& j = facts.job;
  std::string out = quote(name).substr(1);
  out.pop_back();
  out += ": " + human_count(parameters) + " parameters in " + std::to_string(facts.blocks.size()) +
         " blocks; " + std::string(name_of(j.type)) + ", state " + std::string(name_of(j.state)) +
         "; " + std::to_string(j.accumulate) + " x " + std::to_string(j.micro_batch) + " x " +
         std::to_string(j.sequence) + " tokens a step" +
         (j.world > 1 ? " on each of " + std::to_string(j.world) + " ranks" : "") + "; seed " +
         std::to_string(j.seed);
  return out + (j.clip > 0 ? "; clipped" : "") + (j.dropout > 0 ? "; with dropout" : "") +
         (j.debug ? "; guarded" : "");
}

}  // namespace cli
