// SPDX-License-Identifier: Apache-2.0
// What measuring a model costs: all of it, by layers. Baseline: one iteration of a plain loop over
// the same blocks, forwards and backwards, which is also run beside each measurement.

#include "bench/common/axes.hpp"
#include "examples/cli/model.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/job.hpp"
#include "protrain/profile/measure.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>

namespace {

using namespace protrain;

model::job const job{.micro_batch = 4, .sequence = 128};

cli::built_model gpt2(std::int64_t layers) {
  model::gpt2_config config = bench::gpt2_quickstart();
  config.layers = static_cast<std::uint64_t>(layers);
  return cli::build_model(config, job);
}

void iterate(block::standalone& blocks) {
  blocks.begin({});
  blocks.forward();
  blocks.backward();
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void measured(benchmark::State& state) {
  cli::built_model const model = gpt2(state.range(0));
  device::host_device device;
  block::standalone blocks(model.table, job);
  iterate(blocks);
  double plain = 0;
  double profile = 0;
  for (auto _ : state) {
    auto const start = std::chrono::steady_clock::now();
    benchmark::DoNotOptimize(profile::measure(device, model.table, job));
    double const taken = seconds_since(start);
    state.SetIterationTime(taken);
    profile += taken;
    auto const again = std::chrono::steady_clock::now();
    iterate(blocks);
    plain += seconds_since(again);
  }
  state.counters["of_iteration"] = profile / plain;
  state.counters["device_bytes"] =
      static_cast<double>(profile::device_need(model.table, job).value);
}

void plain_loop(benchmark::State& state) {
  cli::built_model const model = gpt2(state.range(0));
  block::standalone blocks(model.table, job);
  for (auto _ : state) {
    iterate(blocks);
    benchmark::DoNotOptimize(blocks.losses().data());
  }
}

void by_layers(benchmark::internal::Benchmark* b) {
  for (std::int64_t const n : bench::quickstart_layers) {
    b->Arg(n);
  }
}

BENCHMARK(measured)->Apply(by_layers)->Unit(benchmark::kMillisecond)->UseManualTime();
BENCHMARK(plain_loop)->Apply(by_layers)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
