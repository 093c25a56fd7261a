// SPDX-License-Identifier: Apache-2.0
// Reading the shared flags, and refusing what can't be a job.

#include "examples/cli/options.hpp"

#include "examples/cli/model.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/config.hpp"
#include "protrain/report/format.hpp"
#include "protrain/update/state_format.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace cli {
namespace {

namespace model = protrain::model;

constexpr std::uint64_t most_samples = 1U << 20U;
constexpr std::array<model::state_format, 3> formats{model::state_format::fp32,
                                                     model::state_format::split_master,
                                                     model::state_format::separate_master};

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

void check_sizes(flags const& f, training_task const& t) {
  if (auto const bytes = protrain::update::bytes_of(t.job); !bytes) {
    std::string const reason = bytes.failure().what;
    f.given("state")
        ? f.refuse("state", reason)
        : throw usage_error("--dtype '" + std::string(name_of(t.job.type)) + "': " + reason);
  }
  if (rough_bytes(t.config, t.job) > 0x1p52) {
    throw usage_error("--model " + quote(t.model) +
                      ": the job moves more than 4 PiB a step; give a smaller --micro-batch, "
                      "--sequence or model");
  }
}

}  // namespace

void add_task_flags(flags& f, std::vector<std::string_view> const& dtypes) {
  std::string all;
  for (std::string_view const d : dtypes) {
    (all += all.empty() ? "" : "|") += d;
  }
  f.add("model",
        "FILE|tiny-gpt2|tiny-llama",
        "tiny-gpt2",
        "config.json of a GPT-2 or a LLaMA, or a built-in one")
      .add("dtype", all, std::string(dtypes.front()), "of parameters, activations and gradients")
      .add("state", "FORMAT", "by dtype", "optimizer state: fp32, split_master, separate_master")
      .add("micro-batch", "N", "1", "samples at a time")
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
                        std::uint64_t default_world) {
  training_task t{.model = f.text("model").value_or("tiny-gpt2")};
  std::optional<double> dropout;
  if (f.given("dropout")) {
    dropout = below_one(f, 0);
  }
  bool const built_in = t.model == "tiny-gpt2" || t.model == "tiny-llama";
  t.config = protrain::io::read_config(
      built_in ? files.find("examples/models/" + t.model + ".json") : t.model, dropout);
  model::job& j = t.job;
  j.type = dtype_named(f.choice("dtype", std::string(dtypes.front()), dtypes));
  j.state = read_state(f, j.type);
  j.micro_batch = f.integer("micro-batch", 1, 1, most_samples);
  j.accumulate = f.integer("accumulate", 1, 1, 1U << 16U);
  j.world = f.integer("world", default_world, 1, 1U << 16U);
  std::uint64_t const positions = positions_of(t.config);
  j.sequence = f.integer("sequence", positions, 1, positions);
  j.seed = f.integer("seed", 1, 0, std::numeric_limits<std::uint64_t>::max());
  j.clip = static_cast<float>(f.number("clip",
                                       0,
                                       0,
                                       static_cast<double>(std::numeric_limits<float>::max()),
                                       "of at least 0; 0 means no clipping"));
  j.dropout = static_cast<float>(dropout_of(t.config));
  j.debug = f.given("debug");
  check_sizes(f, t);
  return t;
}

void add_budget_flags(flags& f) {
  f.add("gpu-memory", "SIZE", "the machine's", "device budget, as in 24GiB or 1.5GB")
      .add("host-memory", "SIZE", "the machine's", "host budget");
}

protrain::plan::budget read_budget(flags const& f,
                                   protrain::hw::machine const& m,
                                   std::uint64_t world) {
  // The device made of host memory has all ranks in one process.
  std::uint64_t const local =
      m.name == protrain::hw::host_demo().name ? world : std::min<std::uint64_t>(world, m.devices);
  return {.gpu = {f.size("gpu-memory", m.device_memory.value)},
          .host = {f.size("host-memory", m.host_memory.value) / std::max<std::uint64_t>(1, local)}};
}

std::string describe(training_task const& t, protrain::trace::trace const& facts) {
  std::uint64_t parameters = 0;
  for (model::parameter const& p : facts.parameters) {
    parameters += model::elements(p);
  }
  using protrain::report::human_count;
  model::job const& j = t.job;
  std::string out = quote(t.model).substr(1);
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
