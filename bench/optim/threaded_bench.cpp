// SPDX-License-Identifier: Apache-2.0
// The CPU optimizer's work on all threads of a crew, split_master (12 bytes a parameter) with bf16
// gradients. Baseline: a plain copy that reads and writes as many bytes, on the same threads, in
// turns with the work; `of_copy` compares the medians of one run.

#include "bench/common/axes.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/device/pages.hpp"
#include "protrain/device/processors.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/exact_sum.hpp"
#include "protrain/optim/master.hpp"
#include "protrain/optim/threaded.hpp"
#include "protrain/optim/vectors.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace {

using namespace protrain;

/// An array in pages of its own, as arenas are.
template <class T>
class array {
 public:
  explicit array(std::size_t n) { ok_ = memory_.try_reserve(n * sizeof(T)); }
  T* data() const { return reinterpret_cast<T*>(memory_.data()); }
  bool ok() const { return ok_; }

 private:
  device::pages memory_{};
  bool ok_ = false;
};

/// A chunk's arrays, first touched by the threads that work on them; the accumulator beside them.
struct chunk_memory {
  chunk_memory(device::workers& crew, std::size_t n)
      : hi(n), lo(n), m(n), v(n), gradient(n), sum(n) {
    if (!ok()) {
      return;
    }
    optim::in_pieces(crew, n, [&](optim::element_range const& own) {
      for (std::uint64_t i = own.begin; i < own.end; ++i) {
        masters().store(i, 1.0F + static_cast<float>(i % 97) * 0.01F);
        m.data()[i] = 0.01F;
        v.data()[i] = 0.01F;
        gradient.data()[i] = to_bfloat16(0.01F);
        sum.data()[i] = 0.5F;
      }
    });
  }
  bool ok() const { return hi.ok() && lo.ok() && m.ok() && v.ok() && gradient.ok() && sum.ok(); }
  optim::split_halves masters() const { return {hi.data(), lo.data()}; }

  array<bfloat16> hi;
  array<std::int16_t> lo;
  array<float> m;
  array<float> v;
  array<bfloat16> gradient;
  array<float> sum;
};

/// Copies `n` bytes, a stretch for each thread.
struct copy_memory {
  copy_memory(device::workers& crew, std::size_t n) : bytes(n), from(n), to(n) {
    if (ok()) {
      optim::in_pieces(crew, bytes, [&](optim::element_range const& own) {
        std::memset(from.data() + own.begin, 1, own.size());
        std::memset(to.data() + own.begin, 2, own.size());
      });
    }
  }
  bool ok() const { return from.ok() && to.ok(); }
  void run(device::workers& crew) const {
    optim::in_pieces(crew, bytes, [&](optim::element_range const& own) {
      std::memcpy(to.data() + own.begin, from.data() + own.begin, own.size());
    });
  }

  std::size_t bytes;
  array<std::byte> from;
  array<std::byte> to;
};

template <class Work>
double seconds_of(Work const& work) {
  auto const start = std::chrono::steady_clock::now();
  work();
  benchmark::ClobberMemory();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

/// `work(crew, memory, n)` in turns with a copy of as many bytes; the benchmark's time is the
/// work's.
template <class Work>
void measure(benchmark::State& state, std::int64_t bytes_per_element, Work const& work) {
  auto const n = static_cast<std::size_t>(state.range(0));
  std::int64_t const bytes = state.range(0) * bytes_per_element;
  device::workers crew(static_cast<std::uint32_t>(state.range(1)));
  chunk_memory const memory(crew, n);
  copy_memory const copy(crew, static_cast<std::size_t>(bytes) / 2);
  if (!memory.ok() || !copy.ok()) {
    state.SkipWithError("not enough memory");
    return;
  }
  std::vector<double> works;
  std::vector<double> copies;
  for (auto _ : state) {
    works.push_back(seconds_of([&] { work(crew, memory, n); }));
    copies.push_back(seconds_of([&] { copy.run(crew); }));
    state.SetIterationTime(works.back());
  }
  auto const moved = static_cast<double>(bytes);
  state.SetLabel(std::string(name_of(optim::widest_vectors())));
  state.counters["threads"] = crew.size();
  state.counters["Gparam/s"] = static_cast<double>(n) / median(works) * 1e-9;
  state.counters["GB/s"] = moved / median(works) * 1e-9;
  state.counters["copy_GB/s"] = moved / median(copies) * 1e-9;
  state.counters["of_copy"] = median(copies) / median(works);
}

/// Reads 14 bytes an element, writes 12.
void adamw(benchmark::State& state) {
  measure(state,
          26,
          [step = optim::adamw{}.prepare(1e-4, 10, true)](
              device::workers& crew, chunk_memory const& a, std::size_t n) {
            optim::update_range<optim::adamw>(
                crew, step, 1.0F, a.gradient.data(), a.masters(), {a.m.data(), a.v.data()}, n);
          });
}

/// A further contribution: reads 6 bytes an element, writes 4.
void accumulate(benchmark::State& state) {
  measure(state, 10, [](device::workers& crew, chunk_memory const& a, std::size_t n) {
    optim::add(crew, a.sum.data(), a.gradient.data(), n);
  });
}

/// Of an fp32 store: reads 4 bytes an element and writes nothing.
void norm(benchmark::State& state) {
  measure(state, 4, [](device::workers& crew, chunk_memory const& a, std::size_t n) {
    optim::exact_sum total;
    optim::add_squares(crew, total, a.sum.data(), n);
    benchmark::DoNotOptimize(total);
  });
}

/// Powers of two threads, and as many as there are processors.
void axes(benchmark::internal::Benchmark* b) {
  b->ArgNames({"elements", "threads"})->UseManualTime()->Unit(benchmark::kMillisecond);
  std::int64_t const all = device::processors_here().usable();
  for (std::int64_t const n : bench::threaded_elements) {
    for (std::int64_t threads = 1; threads < all; threads *= 2) {
      b->Args({n, threads});
    }
    b->Args({n, all});
  }
}

BENCHMARK(adamw)->Apply(axes);
BENCHMARK(accumulate)->Apply(axes);
BENCHMARK(norm)->Apply(axes);

}  // namespace

BENCHMARK_MAIN();
