// SPDX-License-Identifier: Apache-2.0
// What the engine costs itself: steps of a model whose blocks do nothing, by instruction. Baseline:
// a plain loop that calls the same blocks forwards and backwards.

#include "bench/common/axes.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/runtime/memory_manager.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>

namespace {

using namespace protrain;

/// What one instruction may take: 500 of them are then a hundredth of a step of a second.
constexpr double limit_seconds = 20e-6;

auto idle_model(std::int64_t blocks) {
  auto const nothing = [](scope&, tensor_view, tensor_view, tensor_view) {};
  auto const idle = [](scope&, tensor_view, tensor_view) {};
  auto const first = make_block([](block_builder& b) { b.output({1}); }, idle, nothing);
  auto const layer = make_block(
      [](block_builder& b) {
        b.parameter("w", {1});
        b.input({1});
        b.output({1});
      },
      idle,
      nothing);
  auto const last = make_block([](block_builder& b) { b.input({1}); }, idle, nothing);
  return stack{first, repeat(blocks, layer), last};
}

model::job const job{.micro_batch = 1, .sequence = 1};

template <class Device>
void step(benchmark::State& state) {
  Device device;
  plan::budget const ample{.gpu = 1_GiB, .host = 1_GiB};
  auto const answer = memory_manager<Device>::try_make(
      device, idle_model(state.range(0)), job, hw::host_demo(), ample);
  if (!answer) {
    state.SkipWithError("no plan");
    return;
  }
  auto& manager = **answer;
  runtime::batch batch;
  batch.targets(1);
  auto const start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    benchmark::DoNotOptimize(manager.step(batch, {.learning_rate = 1e-3}).get().loss);
  }
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
  auto const instructions = static_cast<double>(manager.engine().program().instructions.size());
  double const each = taken.count() / static_cast<double>(state.iterations()) / instructions;
  state.counters["instructions"] = instructions;
  state.counters["ns_each"] = each * 1e9;
  state.counters["of_limit"] = each / limit_seconds;
}

void plain_loop(benchmark::State& state) {
  auto const model = idle_model(state.range(0));
  block::table const table = model.entries(job);
  block::standalone blocks(table, job);
  for (auto _ : state) {
    blocks.begin({});
    blocks.forward();
    blocks.backward();
    benchmark::DoNotOptimize(blocks.losses().data());
  }
  state.counters["instructions"] = static_cast<double>(2 * table.blocks.size());
}

void by_blocks(benchmark::internal::Benchmark* b) {
  for (std::int64_t const n : bench::idle_blocks) {
    b->Arg(n);
  }
}

BENCHMARK(step<device::host_device>)
    ->Apply(by_blocks)
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();
BENCHMARK(step<device::serial_device>)->Apply(by_blocks)->Unit(benchmark::kMicrosecond);
BENCHMARK(plain_loop)->Apply(by_blocks)->Unit(benchmark::kMicrosecond);

}  // namespace

BENCHMARK_MAIN();
