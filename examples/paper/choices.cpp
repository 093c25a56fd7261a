// SPDX-License-Identifier: Apache-2.0
// What is chosen, and what parts of the method are worth: table 4 and the ablation.

#include "examples/paper/facts.hpp"
#include "examples/paper/predict.hpp"
#include "examples/paper/ways.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/plan/closed_form.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace paper {
namespace {

namespace hw = protrain::hw;
namespace plan = protrain::plan;

constexpr std::array two_ways{ours, theirs};

constexpr char const* common_rules =
    "Machines are the library's presets with all their memory, times a roofline's (analytic, "
    "nothing "
    "measured); bf16, 12 bytes of state a parameter, no clipping, no accumulation, no dropout, "
    "sequences of 1024, eager attention.";

// --- table 4

std::vector<double> five(std::uint64_t chunks,
                         std::uint64_t persist,
                         std::uint64_t buffer,
                         std::uint64_t swap,
                         std::uint64_t checkpoint) {
  std::vector<double> out;
  for (std::uint64_t const n : {chunks, persist, buffer, swap, checkpoint}) {
    out.push_back(static_cast<double>(n));
  }
  return out;
}

prediction closed_form(configuration const& c, std::uint64_t micro_batch) {
  hw::machine const m = machine_named(c.machine);
  auto const facts = make_facts(theirs, c.what.shape, m, micro_batch);
  auto const layout = protrain::chunk::make_layout(
      facts, protrain::chunk::uniform_grid{}.capacities(facts).front());
  auto const job = protrain::cost::make_paper_job(
      facts, layout, m, protrain::update::timing::during_backward, protrain::link::derated{});
  prediction out{.by = "paper's closed form", .micro_batch = micro_batch};
  if (auto const found = plan::search_closed_form(job.value(), m.device_memory)) {
    auto const& n = found->at;
    out.values = five(layout.chunks.size(), n.persist, n.buffer, n.swap, n.checkpoint);
  }
  return out;
}

prediction choice(way const& w,
                  configuration const& c,
                  std::uint64_t micro_batch,
                  options const& o) {
  hw::machine const m = machine_named(c.machine);
  prediction out{.by = std::string(w.name), .micro_batch = micro_batch};
  if (auto const p = make_plan(w, make_facts(w, c.what.shape, m, micro_batch), m, {}, o)) {
    auto const& n = p->at;
    out.values = five(p->layout.chunks.size(), n.persist, n.buffer, n.swap, n.checkpoint);
    out.plan = p->string().view();
  }
  return out;
}

// --- ablation

/// What each part is taken away by.
constexpr std::array<char const*, 3> requests{
    "persist=0,buffer=0", "time=after_backward", "checkpoint=999,swap=0"};

/// Times of a step without each part over the time of the whole; empty where one of them doesn't fit.
std::vector<double> slowdowns(way const& w, std::uint64_t micro_batch, options const& o) {
  hw::machine const m = machine_named(ablation_machine);
  auto const facts = make_facts(w, ablation_model.shape, m, micro_batch);
  auto const whole = make_plan(w, facts, m, {}, o);
  std::vector<double> out;
  for (char const* const request : requests) {
    auto const without = make_plan(w, facts, m, plan::parse(request).value(), o);
    if (!whole || !without) {
      return {};
    }
    out.push_back(without->predicted.iteration.seconds() / whole->predicted.iteration.seconds());
  }
  return out;
}

constexpr std::array<std::uint64_t, 6> tried{1, 2, 4, 8, 16, 32};

/// Slowdowns over micro-batches; by part as `slowdowns`.
struct sweep {
  std::uint64_t micro_batch = 0;  ///< the best one for the whole
  std::vector<double> best{};     ///< there
  std::vector<double> least{};
  std::vector<double> most{};
  std::array<std::vector<double>, tried.size()> by_size{};
};

sweep make_sweep(way const& w, options const& o) {
  hw::machine const m = machine_named(ablation_machine);
  sweep out{.micro_batch = best_micro_batch(w, ablation_model.shape, m, o).micro_batch};
  out.best = out.least = out.most = slowdowns(w, out.micro_batch, o);
  for (std::size_t i = 0; i < tried.size(); ++i) {
    o.progress("ablation: " + std::string(w.name) + ", micro-batch " + std::to_string(tried[i]));
    out.by_size[i] = slowdowns(w, tried[i], o);
    for (std::size_t k = 0; k < std::min(out.by_size[i].size(), out.least.size()); ++k) {
      out.least[k] = std::min(out.least[k], out.by_size[i][k]);
      out.most[k] = std::max(out.most[k], out.by_size[i][k]);
    }
  }
  return out;
}

/// A row of the ablation: a part, and which of its slowdowns over micro-batches.
struct figure {
  std::size_t part;
  std::string name;
  double paper;
  std::vector<double> sweep::* of;
};

std::vector<figure> figures() {
  std::vector<figure> out;
  for (std::size_t k = 0; k < ablations.size(); ++k) {
    ablation const& a = ablations[k];
    std::string const name(a.without);
    if (a.least < a.most) {
      out.push_back({k, name + ", least", a.least, &sweep::least});
      out.push_back({k, name + ", most", a.most, &sweep::most});
    } else {
      out.push_back({k, name, a.least, &sweep::best});
    }
  }
  return out;
}

constexpr char const* ablation_rule =
    "Without chunk hierarchy: persist=0,buffer=0, nothing persistent and as few buffers as a block "
    "needs. Without overlapped CPU update: time=after_backward. Checkpoint everything: "
    "checkpoint=999,swap=0. What a request leaves open is searched again.";

}  // namespace

table predict_table4(options const& o) {
  table out{.id = "4",
            .title = "Chosen configurations",
            .quantities = {"n_chunk", "n_persist", "n_buffer", "n_swap", "n_checkpoint"}};
  out.rules = {common_rules,
               "The paper's batch is taken to be that of all four GPUs, a micro-batch of a quarter "
               "on each; GPT2-1B, whose hidden size isn't printed, has 1600 and 25 heads.",
               "The paper's closed form is equations (2) to (11) over the same trace, with alpha "
               "1.10 and the layout that wastes least; 'paper's policies' and 'ours' are searched "
               "by simulation."};
  for (configuration const& c : table4) {
    row next{.name = std::string(c.name) + ": " + std::string(c.what.name) + ", batch " +
                     std::to_string(c.batch),
             .machine = std::string(c.machine),
             .paper = five(c.chunks, c.persist, c.buffer, c.swap, c.checkpoint)};
    std::uint64_t const micro_batch = c.batch / hw::all_ranks(machine_named(c.machine));
    next.predicted.push_back(closed_form(c, micro_batch));
    for (way const& w : {theirs, ours}) {
      o.progress("table 4: " + next.name + ", " + std::string(w.name));
      next.predicted.push_back(choice(w, c, micro_batch, o));
    }
    out.rows.push_back(std::move(next));
  }
  return out;
}

std::vector<table> predict_ablation(options const& o) {
  table best{.id = "ablation",
             .title = "What parts of the method are worth",
             .quantities = {"slowdown"},
             .digits = 2,
             .micro_batches = true,
             .rules = {common_rules,
                       "Times of a step without a part over those of the whole, at the micro-batch "
                       "that is best for the whole; of the range that the paper prints for chunks, "
                       "the least and the most over that and micro-batches of 1 to 32.",
                       ablation_rule}};
  table sizes{.id = "ablation by micro-batch",
              .title = "The same at other micro-batches",
              .digits = 2,
              .rules = {"As above; the paper prints no micro-batch."}};
  std::string const machine(ablation_machine);
  for (ablation const& a : ablations) {
    sizes.quantities.emplace_back(a.without);
  }
  for (figure const& f : figures()) {
    best.rows.push_back({f.name, machine, {f.paper}, {}});
  }
  for (std::uint64_t const n : tried) {
    sizes.rows.push_back({"micro-batch " + std::to_string(n), machine, {}, {}});
  }
  for (way const& w : two_ways) {
    sweep const all = make_sweep(w, o);
    std::string const by(w.name);
    for (std::size_t i = 0; figure const& f : figures()) {
      std::vector<double> const& of = all.*f.of;
      best.rows[i++].predicted.push_back(
          {by, of.empty() ? of : std::vector{of[f.part]}, all.micro_batch, ""});
    }
    for (std::size_t i = 0; i < tried.size(); ++i) {
      sizes.rows[i].predicted.push_back({by, all.by_size[i], tried[i], ""});
    }
  }
  return {best, sizes};
}

}  // namespace paper
