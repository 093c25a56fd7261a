// SPDX-License-Identifier: Apache-2.0
// Sizes and speeds: tables 2 and 3.

#include "examples/paper/predict.hpp"

#include "examples/paper/facts.hpp"
#include "examples/paper/ways.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace paper {
namespace {

namespace hw = protrain::hw;
namespace plan = protrain::plan;

constexpr std::array three_ways{ours, ours_fused, theirs};

constexpr char const* table_rules =
    "Machines are the library's presets with all their memory, times a roofline's (analytic, "
    "nothing "
    "measured); bf16, 12 bytes of state a parameter, no clipping, no accumulation, no dropout, "
    "sequences of 1024.";
constexpr char const* attention_rule =
    "Attention is eager, which writes the probabilities of all pairs, as the paper names no fused "
    "kernel; beside it stands fused attention.";
constexpr char const* bundles_rule =
    "'Ours' are the library's default policies; 'paper's policies' are persist_first, "
    "uniform_grid, "
    "execution_order, interleaved, derated, gpu_if_persistent and during_backward, by the same "
    "simulation.";

// --- table 2

/// The plan that takes least memory of a size: everything checkpointed, the fewest buffers, no update
/// left to the next step, for which gradients would wait, as much persistent as fits. Chunks are the
/// policy's, or of a block each.
std::optional<plan::plan> smallest_plan(way const& w,
                                        std::uint64_t layers,
                                        hw::machine const& m,
                                        options const& o) {
  auto const facts = make_facts(w, gpt2(largest_hidden, layers, largest_heads), m, 1);
  plan::request wanted{.buffer = 0, .swap = 0, .checkpoint = layers, .defer = 0};
  auto found = make_plan(w, facts, m, wanted, o);
  if (!found) {
    wanted.chunk =
        protrain::chunk::detail::base_capacity(facts) * protrain::size_of(protrain::dtype::bf16);
    found = make_plan(w, facts, m, wanted, o);
  }
  return found ? std::optional(*found) : std::nullopt;
}

/// More layers by the step while they fit, then one by one down to the most that do.
prediction largest_model(way const& w, hw::machine const& m, options const& o) {
  constexpr std::uint64_t step = 8;
  std::uint64_t layers = step;
  while (smallest_plan(w, layers, m, o)) {
    o.progress("table 2: " + std::string(m.name.view()) + ", " + std::string(w.name) + ": " +
               std::to_string(layers) + " layers");
    layers += step;
  }
  for (std::uint64_t n = layers - 1; n > 0; --n) {
    if (auto const fits = smallest_plan(w, n, m, o)) {
      auto const count = parameter_count(gpt2(largest_hidden, n, largest_heads));
      return {.by = std::string(w.name),
              .values = {static_cast<double>(count) * 1e-9},
              .micro_batch = 1,
              .plan = std::string(fits->string().view())};
    }
  }
  return {.by = std::string(w.name), .micro_batch = 1};
}

// --- table 3

prediction speed(way const& w, throughput const& t, options const& o) {
  hw::machine const m = machine_named(t.machine);
  prediction out{.by = std::string(w.name)};
  auto const keep = [&](auto const& found, std::uint64_t micro_batch) {
    out.micro_batch = micro_batch;
    if (found) {
      out.values = {tokens_per_second(*found)};
      out.plan = found->string().view();
    }
  };
  if (t.batch > 0) {
    std::uint64_t const mine = t.batch / hw::all_ranks(m);
    keep(make_plan(w, make_facts(w, t.what.shape, m, mine), m, {}, o), mine);
  } else {
    auto const best = best_micro_batch(w, t.what.shape, m, o);
    keep(best.found, best.micro_batch);
  }
  return out;
}

}  // namespace

table predict_table2(options const& o) {
  table out{.id = "2",
            .title = "Largest trainable GPT-2",
            .quantities = {"billions_of_parameters"},
            .digits = 1};
  out.rules = {
      table_rules,
      "Models have a hidden size of 8192 and 64 heads, as the paper's of 15 to 40 billion, "
      "and as many layers as fit with one sequence on each GPU, every block checkpointed, the "
      "fewest "
      "buffers and no update deferred; chunks are the sizing policy's, or of a block each.",
      attention_rule,
      bundles_rule};
  for (largest const& l : table2) {
    row next{.name = "GPT-2", .machine = std::string(l.machine), .paper = {l.billions}};
    for (way const& w : three_ways) {
      next.predicted.push_back(largest_model(w, machine_named(l.machine), o));
    }
    out.rows.push_back(std::move(next));
  }
  return out;
}

table predict_table3(options const& o) {
  table out{
      .id = "3", .title = "Throughput", .quantities = {"tokens_per_second"}, .micro_batches = true};
  out.rules = {table_rules,
               "The micro-batch is the one with the most predicted tokens per second, as plan "
               "--micro-batch auto finds it; where the paper prints a batch, it is that.",
               attention_rule,
               bundles_rule};
  for (throughput const& t : table3) {
    row next{.name = std::string(t.what.name),
             .machine = std::string(t.machine),
             .paper = {t.tokens_per_second}};
    for (way const& w : three_ways) {
      o.progress("table 3: " + next.name + ", " + std::string(w.name));
      next.predicted.push_back(speed(w, t, o));
    }
    out.rows.push_back(std::move(next));
  }
  return out;
}

}  // namespace paper
