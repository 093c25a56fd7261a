// SPDX-License-Identifier: Apache-2.0
// What address assignment costs: one take and one give among others that live. Baseline: a bump
// pointer, which never gives back.

#include "bench/common/axes.hpp"
#include "protrain/core/math.hpp"
#include "protrain/schedule/detail/arena.hpp"

#include <benchmark/benchmark.h>

#include <chrono>
#include <cstdint>
#include <vector>

namespace {

using namespace protrain;

/// What one pair may take: a program of 10,000 allocations then spends half a second on them.
constexpr double limit_seconds = 5e-5;

/// Sizes in granules, in one fixed order.
std::uint64_t size_of_take(std::uint64_t k) { return address_granule * (1 + k * 7919 % 61); }

void take_and_give(benchmark::State& state) {
  auto const live = static_cast<std::size_t>(state.range(0));
  schedule::detail::arena arena;
  std::vector<std::uint64_t> offsets;
  for (std::size_t i = 0; i < live; ++i) {
    offsets.push_back(arena.take(size_of_take(i)).offset);
  }
  std::uint64_t k = 0;
  schedule::detail::clock last{};
  auto const start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    std::uint64_t& slot = offsets[k * 31 % live];
    last[0] = static_cast<std::uint32_t>(k);
    arena.give(slot, last);
    auto const placed = arena.take(size_of_take(k));
    slot = placed.offset;
    benchmark::DoNotOptimize(placed);
    ++k;
  }
  std::chrono::duration<double> const taken = std::chrono::steady_clock::now() - start;
  state.SetItemsProcessed(state.iterations());
  state.counters["of_limit"] =
      taken.count() / static_cast<double>(state.iterations()) / limit_seconds;
}

void bump_pointer(benchmark::State& state) {
  std::uint64_t top = 0;
  std::uint64_t k = 0;
  for (auto _ : state) {
    std::uint64_t const placed = top;
    top += granules(size_of_take(k++));
    benchmark::DoNotOptimize(placed);
  }
  state.SetItemsProcessed(state.iterations());
}

void by_live(benchmark::internal::Benchmark* b) {
  for (std::int64_t const n : bench::live_allocations) {
    b->Arg(n);
  }
}

BENCHMARK(take_and_give)->Apply(by_live);
BENCHMARK(bump_pointer);

}  // namespace

BENCHMARK_MAIN();
