// SPDX-License-Identifier: Apache-2.0
// What one program of a 48-block model costs: compile, verify, simulate. Baseline: reading every
// instruction and operand once.

#include "bench/common/axes.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/simulate.hpp"

#include <benchmark/benchmark.h>

#include <cstdint>

namespace {

using namespace protrain;

struct compiled {
  plan::plan plan;
  schedule::program program;
};

/// Everything that can move moves.
compiled const& job() {
  static compiled const made = [] {
    hw::machine const m = hw::h200x1();
    trace::trace const t = bench::gpt2_trace(bench::gpt2_10b(), 8, 1.0F, m.compute_half);
    auto const wanted = plan::parse("persist=1,buffer=3,swap=8,checkpoint=30");
    plan::budget const all{.gpu = {1ULL << 40U}, .host = {1ULL << 40U}};
    auto const p = plan::make(t, m, all, policies<>{}, *wanted);
    return compiled{*p, *p->compile()};
  }();
  return made;
}

void count(benchmark::State& state) {
  state.counters["instructions"] = static_cast<double>(job().program.instructions.size());
  state.SetItemsProcessed(state.iterations() *
                          static_cast<std::int64_t>(job().program.instructions.size()));
}

void compile(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(job().plan.compile());
  }
  count(state);
}

void verify(benchmark::State& state) {
  for (auto _ : state) {
    auto const v = schedule::verify(job().program, job().plan.trace, job().plan.layout);
    if (!v) {
      state.SkipWithError("verify refused the program");
      return;
    }
  }
  count(state);
}

void simulate(benchmark::State& state) {
  for (auto _ : state) {
    auto const durations = sim::durations_of(job().program, job().plan.trace, hw::h200x1());
    benchmark::DoNotOptimize(sim::simulate(job().program, durations));
  }
  count(state);
}

void memory(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(schedule::memory_of(job().program, space::device));
  }
  count(state);
}

void read_once(benchmark::State& state) {
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (schedule::instruction const& i : job().program.instructions) {
      for (schedule::operand const& o : job().program.operands_of(i)) {
        sum += o.bytes + i.amount;
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  count(state);
}

BENCHMARK(compile)->Unit(benchmark::kMicrosecond);
BENCHMARK(verify)->Unit(benchmark::kMicrosecond);
BENCHMARK(simulate)->Unit(benchmark::kMicrosecond);
BENCHMARK(memory)->Unit(benchmark::kMicrosecond);
BENCHMARK(read_once)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
