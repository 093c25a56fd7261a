// SPDX-License-Identifier: Apache-2.0
// How long the closed form's search takes for a 10B GPT-2. Baselines: filling its quantities from a
// trace, and evaluating its equations for one set of numbers.

#include "bench/common/axes.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_memory.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/paper_time.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/plan/closed_form.hpp"
#include "protrain/update/timing.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>

namespace {

using namespace protrain;

/// What a search may take: a plan is to be free beside the profiling that feeds it.
constexpr double limit_seconds = 1e-3;

struct setting {
  trace::trace facts;
  hw::machine machine = hw::h200x1();
  chunk::layout layout{};
  bytes capacity{};

  cost::paper_job job() const {
    return *cost::make_paper_job(
        facts, layout, machine, update::timing::during_backward, link::derated{});
  }
};

setting make_setting(benchmark::State const& state) {
  setting out{};
  auto const micro_batch = static_cast<std::uint64_t>(state.range(0));
  out.facts = bench::gpt2_trace(bench::gpt2_10b(), micro_batch, 0.0F, out.machine.compute_half);
  out.layout = chunk::make_layout(out.facts, chunk::detail::base_capacity(out.facts));
  out.capacity = {static_cast<std::uint64_t>(state.range(1)) << 30U};
  return out;
}

/// Combinations of the four numbers that the search decides between.
std::uint64_t candidates(cost::paper_job const& j) {
  std::uint64_t placed = 0;
  for (cost::paper_buffers const& b : j.buffers) {
    placed += b.most - b.fewest + 1;
  }
  std::uint64_t assigned = 0;
  for (std::uint64_t s = 0; s <= cost::most_swapped(j); ++s) {
    assigned += j.blocks.size() - s + 1;
  }
  return placed * assigned;
}

void search(benchmark::State& state) {
  setting const s = make_setting(state);
  cost::paper_job const job = s.job();
  auto const start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    auto const found = plan::search_closed_form(job, s.capacity);
    if (!found) {
      state.SkipWithError("no numbers fit");
      return;
    }
    state.counters["step_seconds"] = found->iteration.seconds();
  }
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
  state.counters["chunks"] = static_cast<double>(job.chunks.size());
  state.counters["candidates"] = static_cast<double>(candidates(job));
  state.counters["of_limit"] =
      taken.count() / static_cast<double>(state.iterations()) / limit_seconds;
}

void fill(benchmark::State& state) {
  setting const s = make_setting(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(s.job());
  }
}

void evaluate(benchmark::State& state) {
  setting const s = make_setting(state);
  cost::paper_job const job = s.job();
  for (auto _ : state) {
    cost::paper_plan const p =
        cost::make_paper_plan(job, {.persist = 1, .buffer = 3, .swap = 2, .checkpoint = 40});
    benchmark::DoNotOptimize(cost::iteration_time(job, p));
    benchmark::DoNotOptimize(cost::peak_memory(job, p));
  }
}

void all_axes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"micro_batch", "gpu_gib"})->Unit(benchmark::kMicrosecond);
  for (std::int64_t const m : bench::micro_batches) {
    for (std::int64_t const g : bench::gpu_gib) {
      b->Args({m, g});
    }
  }
}

BENCHMARK(search)->Apply(all_axes);
BENCHMARK(fill)->Apply(all_axes);
BENCHMARK(evaluate)->Apply(all_axes);

}  // namespace

BENCHMARK_MAIN();
