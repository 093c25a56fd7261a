// SPDX-License-Identifier: Apache-2.0
// What planning costs by program: compile, verify, simulate (alone, and where work slows other work),
// for models of 50 and of 100 blocks.
// Baseline: reading every instruction and operand once.

#include "bench/common/axes.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/trace/trace.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <vector>

namespace {

using namespace protrain;

/// What verifying a program of 100 blocks may take, in CPU time.
constexpr double limit_seconds = 1e-3;

struct compiled {
  plan::plan plan;
  schedule::program program;
  std::vector<schedule::program> segments;
};

/// Everything that can move moves.
compiled make(std::uint64_t layers, std::uint64_t accumulate) {
  hw::machine const m = hw::h200x1();
  model::gpt2_config config = bench::gpt2_10b();
  config.layers = layers;
  trace::trace t = bench::gpt2_trace(config, 8, 1.0F, m.compute_half);
  t.job.accumulate = accumulate;
  auto const wanted = plan::parse("persist=1,buffer=3,swap=8,checkpoint=30");
  plan::budget const all{.gpu = {1ULL << 40U}, .host = {1ULL << 40U}};
  auto const p = plan::make(t, m, all, policies<>{}, *wanted);
  std::vector<schedule::program> segments = *p->segments();
  return {.plan = *p, .program = segments.front(), .segments = segments};
}

compiled const& job(benchmark::State const& state) {
  static std::map<std::int64_t, compiled> made;
  std::int64_t const layers = state.range(0);
  auto found = made.find(layers);
  if (found == made.end()) {
    found = made.emplace(layers, make(static_cast<std::uint64_t>(layers), 1)).first;
  }
  return found->second;
}

void count(benchmark::State& state, std::size_t instructions) {
  state.counters["instructions"] = static_cast<double>(instructions);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(instructions));
}

void compile(benchmark::State& state) {
  compiled const& at = job(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(at.plan.compile());
  }
  count(state, at.program.instructions.size());
}

void verify(benchmark::State& state) {
  compiled const& at = job(state);
  std::clock_t const start = std::clock();
  for (auto _ : state) {
    auto const v = schedule::verify(at.program, at.plan.trace, at.plan.layout);
    if (!v) {
      state.SkipWithError("verify refused the program");
      return;
    }
  }
  double const taken = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  state.counters["of_limit"] = taken / static_cast<double>(state.iterations()) / limit_seconds;
  count(state, at.program.instructions.size());
}

/// All programs of a job. A middle one is proven for its first and its last time.
void verify_segments(benchmark::State& state) {
  compiled const at =
      make(static_cast<std::uint64_t>(state.range(0)), static_cast<std::uint64_t>(state.range(1)));
  for (auto _ : state) {
    auto const v = schedule::verify_segments(at.segments, at.plan.trace, at.plan.layout);
    if (!v) {
      state.SkipWithError("verify refused a segment");
      return;
    }
  }
  std::size_t instructions = 0;
  for (schedule::program const& p : at.segments) {
    instructions += p.instructions.size();
  }
  state.counters["segments"] = static_cast<double>(at.segments.size());
  count(state, instructions);
}

void simulate(benchmark::State& state) {
  compiled const& at = job(state);
  for (auto _ : state) {
    auto const durations = sim::durations_of(at.program, at.plan.trace, hw::h200x1());
    benchmark::DoNotOptimize(sim::simulate(at.program, durations));
  }
  count(state, at.program.instructions.size());
}

void simulate_shared(benchmark::State& state) {
  compiled const& at = job(state);
  sim::pace const pace(hw::h200x1(), link::shared{}, at.plan.trace.job.world);
  for (auto _ : state) {
    auto const durations = sim::durations_of(at.program, at.plan.trace, pace);
    benchmark::DoNotOptimize(sim::simulate(at.program, durations, pace));
  }
  count(state, at.program.instructions.size());
}

/// Once for each search.
void make_pace(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(sim::pace(hw::h200x1(), link::shared{}, 1));
  }
}

void memory(benchmark::State& state) {
  compiled const& at = job(state);
  for (auto _ : state) {
    benchmark::DoNotOptimize(schedule::memory_of(at.program, space::device));
  }
  count(state, at.program.instructions.size());
}

void read_once(benchmark::State& state) {
  compiled const& at = job(state);
  for (auto _ : state) {
    std::uint64_t sum = 0;
    for (schedule::instruction const& i : at.program.instructions) {
      for (schedule::operand const& o : at.program.operands_of(i)) {
        sum += o.bytes + i.amount;
      }
    }
    benchmark::DoNotOptimize(sum);
  }
  count(state, at.program.instructions.size());
}

void by_layers(benchmark::internal::Benchmark* b) {
  b->ArgName("layers")->Unit(benchmark::kMicrosecond);
  for (std::int64_t const n : bench::planned_layers) {
    b->Arg(n);
  }
}
void by_layers_and_micro_batches(benchmark::internal::Benchmark* b) {
  b->ArgNames({"layers", "accumulate"})->Unit(benchmark::kMicrosecond);
  for (std::int64_t const n : bench::planned_layers) {
    for (std::int64_t const m : bench::planned_micro_batches) {
      b->Args({n, m});
    }
  }
}

BENCHMARK(compile)->Apply(by_layers);
BENCHMARK(verify)->Apply(by_layers);
BENCHMARK(verify_segments)->Apply(by_layers_and_micro_batches);
BENCHMARK(simulate)->Apply(by_layers);
BENCHMARK(simulate_shared)->Apply(by_layers);
BENCHMARK(make_pace)->Unit(benchmark::kMicrosecond);
BENCHMARK(memory)->Apply(by_layers);
BENCHMARK(read_once)->Apply(by_layers);

}  // namespace

BENCHMARK_MAIN();
