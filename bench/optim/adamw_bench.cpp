// SPDX-License-Identifier: Apache-2.0
// AdamW on one core, by state format and vector instructions. Baseline: a plain copy that reads and
// writes as many bytes; `of_copy` is the step's rate as a share of it.

#include "bench/common/axes.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/update.hpp"
#include "protrain/optim/vectors.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace protrain;

/// The arrays of `n` elements, touched and at rest: values near 1, moments that don't decay away.
struct arrays {
  explicit arrays(std::size_t n)
      : p(n, 1.0F), m(n, 0.01F), v(n, 0.01F), g(n, 0.01F), hi(n), lo(n, 1), half(n) {
    for (std::size_t i = 0; i < n; ++i) {
      optim::split_halves{hi.data(), lo.data()}.store(i, 1.0F + static_cast<float>(i % 97) * 0.01F);
      half[i] = to_bfloat16(0.01F);
    }
  }
  std::vector<float> p;
  std::vector<float> m;
  std::vector<float> v;
  std::vector<float> g;
  std::vector<bfloat16> hi;
  std::vector<std::int16_t> lo;
  std::vector<bfloat16> half;
};

/// fp32 with fp32 gradients.
struct fp32 {
  static constexpr std::int64_t bytes = 4 * 4 + 3 * 4;  // read and written per element
  static float const* gradient(arrays& a) { return a.g.data(); }
  static optim::whole_master masters(arrays& a) { return {a.p.data()}; }
};

/// split_master with bf16 gradients.
struct split {
  static constexpr std::int64_t bytes = (2 + 2 + 4 + 4 + 2) + (2 + 2 + 4 + 4);
  static bfloat16 const* gradient(arrays& a) { return a.half.data(); }
  static optim::split_halves masters(arrays& a) { return {a.hi.data(), a.lo.data()}; }
};

/// separate_master with bf16 gradients.
struct separate {
  static constexpr std::int64_t bytes = (4 + 4 + 4 + 2) + (4 + 4 + 4 + 2);
  static bfloat16 const* gradient(arrays& a) { return a.half.data(); }
  static optim::master_beside<bfloat16> masters(arrays& a) { return {a.p.data(), a.hi.data()}; }
};

/// Bytes per second, read and written, of the fastest of several copies of bytes / 2.
double copy_rate(std::int64_t bytes) {
  auto const half = static_cast<std::size_t>(bytes) / 2;
  std::vector<std::byte> from(half, std::byte{1});
  std::vector<std::byte> to(half);
  double best = 0;
  for (int repeat = 0; repeat < 10; ++repeat) {
    int const times = bytes < (1 << 22) ? 1000 : 1;
    auto const start = std::chrono::steady_clock::now();
    for (int k = 0; k < times; ++k) {
      std::memcpy(to.data(), from.data(), half);
      benchmark::ClobberMemory();
    }
    std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(bytes) * times / took.count());
  }
  return best;
}

void copy(benchmark::State& state) {
  auto const half = static_cast<std::size_t>(state.range(0) * fp32::bytes) / 2;
  std::vector<std::byte> const from(half, std::byte{1});
  std::vector<std::byte> to(half);
  for (auto _ : state) {
    std::memcpy(to.data(), from.data(), half);
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(state.iterations() * state.range(0) * fp32::bytes);
}

/// Runs `step(arrays, n)` and reports its rate.
template <class Format, class Step>
void measure(benchmark::State& state, Step step) {
  auto const n = static_cast<std::size_t>(state.range(0));
  std::int64_t const bytes = state.range(0) * Format::bytes;
  arrays a(n);
  auto const start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    step(a, n);
    benchmark::ClobberMemory();
  }
  std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
  double const moved = static_cast<double>(state.iterations()) * static_cast<double>(bytes);
  state.SetBytesProcessed(state.iterations() * bytes);
  state.SetItemsProcessed(state.iterations() * state.range(0));
  state.counters["of_copy"] = moved / took.count() / copy_rate(bytes);
}

optim::adamw_step tenth_step() { return optim::adamw{}.prepare(1e-4, 10, true); }

/// What a trainer calls: the widest vectors.
template <class Format>
void update(benchmark::State& state) {
  state.SetLabel(std::string(name_of(optim::widest_vectors())));
  measure<Format>(state, [step = tenth_step()](arrays& a, std::size_t n) {
    optim::update_range<optim::adamw>(
        step, 1.0F, Format::gradient(a), Format::masters(a), {a.m.data(), a.v.data()}, n);
  });
}

/// One kind of vectors.
template <class Format, optim::vectors With>
void vectors(benchmark::State& state) {
  measure<Format>(state, [step = tenth_step()](arrays& a, std::size_t n) {
    float_environment const environment;
    optim::adamw_vectors(
        With, step, 1.0F, Format::gradient(a), Format::masters(a), a.m.data(), a.v.data(), n);
  });
}

/// Element by element, as where there are no vectors.
template <class Format>
void scalar(benchmark::State& state) {
  measure<Format>(state, [step = tenth_step()](arrays& a, std::size_t n) {
    float_environment const environment;
    auto const masters = Format::masters(a);
    auto const* const g = Format::gradient(a);
    for (std::size_t i = 0; i < n; ++i) {
      float p = masters.load(i);
      optim::adamw_element(step, 1.0F, widen(g[i]), p, a.m[i], a.v[i]);
      masters.store(i, p);
    }
  });
}

void sizes(benchmark::internal::Benchmark* b) {
  b->ArgName("elements")->Unit(benchmark::kMicrosecond);
  for (std::int64_t const n : bench::update_elements) {
    b->Arg(n);
  }
}

BENCHMARK(copy)->Apply(sizes);
BENCHMARK_TEMPLATE(update, fp32)->Apply(sizes);
BENCHMARK_TEMPLATE(update, split)->Apply(sizes);
BENCHMARK_TEMPLATE(update, separate)->Apply(sizes);
BENCHMARK_TEMPLATE(scalar, fp32)->Apply(sizes);
BENCHMARK_TEMPLATE(scalar, split)->Apply(sizes);

/// Registers what this processor can run; the others are named, not measured.
template <optim::vectors With>
void register_vectors() {
  std::string const name(optim::name_of(With));
  if (!optim::supported(With)) {
    std::fprintf(stderr, "left out: this processor has no %s\n", name.c_str());
    return;
  }
  sizes(benchmark::RegisterBenchmark(("vectors<fp32, " + name + ">").c_str(), vectors<fp32, With>));
  sizes(
      benchmark::RegisterBenchmark(("vectors<split, " + name + ">").c_str(), vectors<split, With>));
}

}  // namespace

int main(int argc, char** argv) {
  register_vectors<optim::vectors::avx2>();
  register_vectors<optim::vectors::avx512>();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) {
    return 1;
  }
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
