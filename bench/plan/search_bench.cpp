// SPDX-License-Identifier: Apache-2.0
// How long planning takes for a 10B GPT-2, with updates split between CPU and device and without.
// Baseline: making one plan whose numbers are given.

#include "bench/common/axes.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/update/site.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>

namespace {

using namespace protrain;

struct setting {
  trace::trace facts;
  hw::machine machine = hw::h200x1();
  plan::budget budget{};
};

setting make_setting(benchmark::State const& state) {
  setting out{};
  auto const micro_batch = static_cast<std::uint64_t>(state.range(0));
  float const clip = state.range(2) != 0 ? 1.0F : 0.0F;
  out.facts = bench::gpt2_trace(bench::gpt2_10b(), micro_batch, clip, out.machine.compute_half);
  out.budget = {.gpu = {static_cast<std::uint64_t>(state.range(1)) << 30U},
                .host = {256ULL << 30U},
                .reserve = {1ULL << 30U}};
  return out;
}

template <class Site>
void search(benchmark::State& state) {
  setting const s = make_setting(state);
  for (auto _ : state) {
    auto const p = plan::search(s.facts, s.machine, s.budget, policies<>{}.with(Site{}));
    if (!p) {
      state.SkipWithError("no plan fits");
      return;
    }
    state.counters["compiled"] = p->search.compiled;
    state.counters["candidates"] = p->search.candidates;
    state.counters["proven"] = p->search.proven ? 1 : 0;
    state.counters["step_seconds"] = p->predicted.iteration.seconds();
    state.counters["bound_seconds"] = p->search.bound.seconds();
  }
}

void fixed(benchmark::State& state) {
  setting const s = make_setting(state);
  auto const wanted = plan::parse("persist=1,buffer=3,swap=0,checkpoint=999");
  for (auto _ : state) {
    auto const p = plan::make(s.facts, s.machine, s.budget, policies<>{}, *wanted);
    if (!p) {
      state.SkipWithError("the plan does not fit");
      return;
    }
    state.counters["step_seconds"] = p->predicted.iteration.seconds();
  }
}

void all_axes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"micro_batch", "gpu_gib", "clip"})->Unit(benchmark::kMillisecond);
  for (std::int64_t const m : bench::micro_batches) {
    for (std::int64_t const g : bench::gpu_gib) {
      b->Args({m, g, 0})->Args({m, g, 1});
    }
  }
}

BENCHMARK(search<update::cpu_or_streamed>)->Apply(all_axes);
BENCHMARK(search<update::gpu_if_persistent>)->Apply(all_axes);
BENCHMARK(fixed)->Apply(all_axes);

}  // namespace

BENCHMARK_MAIN();
