// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of a communicator. A fixture F has `F::ranks` and `F::run(body)`, which calls
// `body(communicator&)` on every rank, each on a thread of its own if there are several, and waits;
// instantiate with PROTRAIN_COMM_LAWS(F...). Buffers are host memory.

#include "protrain/comm/communicator.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/dtype.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

namespace protrain::test {

/// Of rank `rank`: sums of three or more round, so that their order counts.
inline float contribution(std::uint32_t rank, std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15ULL + rank * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 31U)) * 0x94D049BB133111EBULL;
  float const x = static_cast<float>(z % 255) - 127;
  return x * ((z >> 40U) % 3 == 0 ? 1.0F : 0x1p-19F);
}

template <class T>
T narrowed(float x) {
  if constexpr (std::is_same_v<T, bfloat16>) {
    return to_bfloat16(x);
  } else {
    return x;
  }
}
inline float widened(float x) { return x; }
inline float widened(bfloat16 x) { return to_float(x); }

/// The left fold in rank order, in fp32, rounded once.
template <class T>
T folded(std::uint32_t ranks, std::uint64_t i) {
  float sum = widened(narrowed<T>(contribution(0, i)));
  for (std::uint32_t r = 1; r < ranks; ++r) {
    sum += widened(narrowed<T>(contribution(r, i)));
  }
  return narrowed<T>(sum);
}

/// Elements of this rank's shard that a reduction gets wrong. (Bodies stay out of the lambdas: they
/// crash g++ 12.)
template <class T, class Comm>
std::uint64_t wrongly_reduced(Comm& c, std::uint64_t shard, dtype type) {
  std::uint64_t const n = shard * c.size();
  std::vector<T> data;
  for (std::uint64_t i = 0; i < n; ++i) {
    data.push_back(narrowed<T>(contribution(c.rank(), i)));
  }
  c.reduce_scatter_ordered({}, reinterpret_cast<std::byte*>(data.data()), n, type);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = c.rank() * shard; i < (c.rank() + 1) * shard; ++i) {
    T const want = folded<T>(c.size(), i);
    wrong += std::memcmp(&want, &data[i], sizeof want) == 0 ? 0U : 1U;
  }
  return wrong;
}

template <class Comm>
std::uint64_t wrongly_gathered(Comm& c, std::uint64_t shard) {
  std::uint64_t const n = shard * c.size();
  std::vector<std::uint8_t> data(n, 0xEE);
  for (std::uint64_t i = 0; i < shard; ++i) {
    data[c.rank() * shard + i] = static_cast<std::uint8_t>(31 * c.rank() + i);
  }
  c.all_gather({}, reinterpret_cast<std::byte*>(data.data()), n);
  std::uint64_t wrong = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    auto const want = static_cast<std::uint8_t>(31 * (i / shard) + i % shard);
    wrong += data[i] == want ? 0U : 1U;
  }
  return wrong;
}

/// By rank, so that doctest is called on one thread only.
template <class F, class T>
std::vector<std::uint64_t> wrongly_reduced_by_rank(std::uint64_t shard, dtype type) {
  std::vector<std::uint64_t> wrong(F::ranks, 0);
  F::run([&](auto& c) { wrong[c.rank()] = wrongly_reduced<T>(c, shard, type); });
  return wrong;
}

TEST_CASE_TEMPLATE_DEFINE("ranks are 0 to size - 1, each once", F, comm_ranks) {
  std::vector<std::uint32_t> seen(F::ranks, 0);
  std::vector<std::uint32_t> sizes(F::ranks, 0);
  F::run([&](auto& c) {
    ++seen.at(c.rank());
    sizes.at(c.rank()) = c.size();
  });
  CHECK(seen == std::vector<std::uint32_t>(F::ranks, 1));
  CHECK(sizes == std::vector<std::uint32_t>(F::ranks, F::ranks));
}

TEST_CASE_TEMPLATE_DEFINE("a reduction folds in rank order and rounds once", F, comm_reduce) {
  std::vector<std::uint64_t> const none(F::ranks, 0);
  for (std::uint64_t const shard : {1U, 2U, 128U, 1000U}) {
    CAPTURE(shard);
    CHECK(wrongly_reduced_by_rank<F, float>(shard, dtype::f32) == none);
    CHECK(wrongly_reduced_by_rank<F, bfloat16>(shard, dtype::bf16) == none);
  }
}

TEST_CASE_TEMPLATE_DEFINE("a gather puts every rank's bytes at its offset", F, comm_gather) {
  for (std::uint64_t const shard : {1U, 7U, 4096U}) {
    std::vector<std::uint64_t> wrong(F::ranks, 0);
    F::run([&](auto& c) { wrong[c.rank()] = wrongly_gathered(c, shard); });
    CHECK(wrong == std::vector<std::uint64_t>(F::ranks, 0));
  }
}

TEST_CASE_TEMPLATE_DEFINE("integers are summed exactly, on every rank alike", F, comm_sum) {
  std::vector<std::uint64_t> sums(F::ranks, 0);
  std::uint64_t want = 0;
  for (std::uint64_t r = 0; r < F::ranks; ++r) {
    want += (1ULL << 53U) + r;
  }
  F::run([&](auto& c) { sums[c.rank()] = c.sum((1ULL << 53U) + c.rank()); });
  CHECK(sums == std::vector<std::uint64_t>(F::ranks, want));
}

TEST_CASE_TEMPLATE_DEFINE("collectives of nothing do nothing", F, comm_nothing) {
  F::run([](auto& c) {
    c.reduce_scatter_ordered({}, nullptr, 0, dtype::f32);
    c.reduce_scatter_ordered({}, nullptr, 0, dtype::bf16);
    c.all_gather({}, nullptr, 0);
  });
  std::vector<std::uint64_t> sums(F::ranks, 1);
  F::run([&](auto& c) { sums[c.rank()] = c.sum(0); });
  CHECK(sums == std::vector<std::uint64_t>(F::ranks, 0));
}

}  // namespace protrain::test

#define PROTRAIN_COMM_LAWS(...)                        \
  TEST_CASE_TEMPLATE_INVOKE(comm_ranks, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(comm_reduce, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(comm_gather, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(comm_sum, __VA_ARGS__);    \
  TEST_CASE_TEMPLATE_INVOKE(comm_nothing, __VA_ARGS__)
