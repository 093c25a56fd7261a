// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of a communicator, a function check_<law> and a test case each. A fixture F has `F::ranks` and `F::run(body)`, which calls
// `body(member)` on every rank, each on a thread of its own, and waits. A member has `comm()`,
// `on(queue, f)`, which calls f(queue_ref) as work of that queue and waits, and `at_once(queue, f,
// queue, g)` for two queues. Instantiate with PROTRAIN_COMM_LAWS(F...). Buffers are host memory.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/core/arithmetic.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/queue.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <vector>

namespace protrain::test {

/// Any finite value has an exponent within 2^20 of any other, and every fourth cancels that of the
/// rank before, so that the order of additions shows even in 8 bits of significand.
template <stored_float T>
T contribution(std::uint32_t rank, std::uint64_t i) {
  std::uint64_t z = (i + 1) * 0x9E3779B97F4A7C15U + rank * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 30U)) * 0x94D049BB133111EBU;
  z = (z ^ (z >> 27U)) * 0xBF58476D1CE4E5B9U;
  z ^= z >> 31U;
  if (rank > 0 && z % 4 == 0) {
    return narrow<T>(-widen(contribution<T>(rank - 1, i)));
  }
  double const significand = 1.0 + static_cast<double>((z >> 8U) & 0xFFFFFFU) * 0x1p-24;
  double const magnitude = std::ldexp(significand, static_cast<int>((z >> 32U) % 21) - 10);
  return narrow<T>(static_cast<float>(((z >> 60U) & 1U) != 0 ? -magnitude : magnitude));
}

/// `x` rounded to T by arithmetic on numbers instead of bits: fp16 ties go to even, bf16 ties away
/// from zero.
template <stored_float T>
T rounded_by_numbers(float x) {
  if constexpr (std::is_same_v<T, float>) {
    return x;
  } else {
    int exponent = 0;
    std::frexp(static_cast<double>(x), &exponent);
    bool const half = std::is_same_v<T, float16>;
    double const unit = std::ldexp(1.0, half ? std::max(exponent, -13) - 11 : exponent - 8);
    double const units = static_cast<double>(x) / unit;
    return narrow<T>(static_cast<float>((half ? std::nearbyint(units) : std::round(units)) * unit));
  }
}

/// The left fold over ranks first, first + 1, ... around to first - 1. fp64 holds the sum of two
/// fp32 well enough that rounding it to fp32 is the fp32 sum.
template <stored_float T>
T folded_by_numbers(std::uint32_t ranks, std::uint64_t i, std::uint32_t first = 0) {
  float total = widen(contribution<T>(first, i));
  for (std::uint32_t k = 1; k < ranks; ++k) {
    float const next = widen(contribution<T>((first + k) % ranks, i));
    total = static_cast<float>(static_cast<double>(total) + static_cast<double>(next));
  }
  return rounded_by_numbers<T>(total);
}

template <class T>
bool same_bits(T const& a, T const& b) {
  return std::memcmp(&a, &b, sizeof a) == 0;
}

/// Elements of `shard` whose sum in a ring's order, which starts after the owner, has other bits.
template <stored_float T>
std::uint64_t seen_by_a_ring(std::uint32_t ranks, std::uint64_t shard) {
  std::uint64_t seen = 0;
  for (std::uint64_t i = 0; i < ranks * shard; ++i) {
    auto const owner = static_cast<std::uint32_t>(i / shard);
    T const ring = folded_by_numbers<T>(ranks, i, (owner + 1) % ranks);
    seen += same_bits(ring, folded_by_numbers<T>(ranks, i)) ? 0U : 1U;
  }
  return seen;
}

/// A buffer whose end is watched.
template <class T>
struct watched {
  explicit watched(std::uint64_t n) : bytes(n * sizeof(T) + 64, std::byte{0xA5}) {}
  std::byte* data() { return bytes.data(); }
  T get(std::uint64_t i) const {
    T out;
    std::memcpy(&out, bytes.data() + i * sizeof(T), sizeof(T));
    return out;
  }
  void set(std::uint64_t i, T x) { std::memcpy(bytes.data() + i * sizeof(T), &x, sizeof(T)); }
  bool whole() const {
    bool good = true;
    for (std::size_t k = bytes.size() - 64; k < bytes.size(); ++k) {
      good = good && bytes[k] == std::byte{0xA5};
    }
    return good;
  }
  std::vector<std::byte> bytes;
};

/// Elements of this rank's shard that a reduction gets wrong. (Bodies stay out of the lambdas: they
/// crash g++ 12.)
template <stored_float T, class Member>
std::uint64_t wrongly_reduced(Member& m, std::uint64_t shard, dtype type) {
  std::uint32_t const ranks = m.comm().size();
  std::uint32_t const rank = m.comm().rank();
  std::uint64_t const n = shard * ranks;
  watched<T> data(n);
  watched<T> staging(n);
  for (std::uint64_t i = 0; i < n; ++i) {
    data.set(i, contribution<T>(rank, i));
  }
  m.on(queue_id::reduce, [&](device::queue_ref q) {
    m.comm().reduce_scatter_ordered(q, data.data(), staging.data(), n, type);
  });
  std::uint64_t wrong = data.whole() && staging.whole() ? 0 : n;
  for (std::uint64_t i = rank * shard; i < (rank + 1) * shard; ++i) {
    wrong += same_bits(folded_by_numbers<T>(ranks, i), data.get(i)) ? 0U : 1U;
  }
  return wrong;
}

template <class Member>
std::uint64_t wrongly_gathered(Member& m, queue_id on, std::uint64_t part) {
  std::uint32_t const ranks = m.comm().size();
  std::uint32_t const rank = m.comm().rank();
  watched<std::uint8_t> data(part * ranks);
  for (std::uint64_t i = 0; i < part; ++i) {
    data.set(rank * part + i, static_cast<std::uint8_t>(31 * rank + i));
  }
  m.on(on, [&](device::queue_ref q) { m.comm().all_gather(q, data.data(), part); });
  std::uint64_t wrong = data.whole() ? 0 : part + 1;
  for (std::uint64_t i = 0; i < part * ranks; ++i) {
    wrong += data.get(i) == static_cast<std::uint8_t>(31 * (i / part) + i % part) ? 0U : 1U;
  }
  return wrong;
}

/// By rank, so that doctest is called on one thread only.
using by_rank = std::vector<std::uint64_t>;

template <class F, stored_float T>
by_rank wrongly_reduced_by_rank(std::uint64_t shard, dtype type) {
  by_rank wrong(F::ranks, 0);
  F::run([&](auto& m) { wrong[m.comm().rank()] = wrongly_reduced<T>(m, shard, type); });
  return wrong;
}

template <class F>
void check_comm_ranks() {
  by_rank seen(F::ranks, 0);
  by_rank sizes(F::ranks, 0);
  F::run([&](auto& m) {
    ++seen.at(m.comm().rank());
    sizes.at(m.comm().rank()) = m.comm().size();
  });
  CHECK(seen == by_rank(F::ranks, 1));
  CHECK(sizes == by_rank(F::ranks, F::ranks));
}

template <class F>
void check_comm_reduce() {
  by_rank const none(F::ranks, 0);
  for (std::uint64_t const shard : {1U, 2U, 127U, 128U, 1000U}) {
    CAPTURE(shard);
    CHECK(wrongly_reduced_by_rank<F, float>(shard, dtype::f32) == none);
    CHECK(wrongly_reduced_by_rank<F, bfloat16>(shard, dtype::bf16) == none);
    CHECK(wrongly_reduced_by_rank<F, float16>(shard, dtype::f16) == none);
  }
  if (F::ranks >= 3) {  // or the test could not tell
    CHECK(seen_by_a_ring<float>(F::ranks, 1000) > 0);
    CHECK(seen_by_a_ring<bfloat16>(F::ranks, 1000) > 0);
    CHECK(seen_by_a_ring<float16>(F::ranks, 1000) > 0);
  }
}

template <class F>
void check_comm_gather() {
  for (queue_id const on : {queue_id::gather, queue_id::cpu}) {
    for (std::uint64_t const part : {1U, 7U, 4096U}) {
      by_rank wrong(F::ranks, 0);
      F::run([&](auto& m) { wrong[m.comm().rank()] = wrongly_gathered(m, on, part); });
      CHECK(wrong == by_rank(F::ranks, 0));
    }
  }
}

template <class F>
void check_comm_sum() {
  by_rank sums(F::ranks, 0);
  by_rank again(F::ranks, 0);
  std::uint64_t want = 0;
  for (std::uint64_t r = 0; r < F::ranks; ++r) {
    want += (std::uint64_t{1} << 53U) + r;
  }
  F::run([&](auto& m) {
    auto& c = m.comm();
    sums[c.rank()] = c.sum((std::uint64_t{1} << 53U) + c.rank());
    again[c.rank()] = c.sum(1);
  });
  CHECK(sums == by_rank(F::ranks, want));
  CHECK(again == by_rank(F::ranks, F::ranks));
}

template <class Member>
void collect_nothing(Member& m) {
  m.on(queue_id::reduce, [&](device::queue_ref q) {
    m.comm().reduce_scatter_ordered(q, nullptr, nullptr, 0, dtype::f32);
    m.comm().reduce_scatter_ordered(q, nullptr, nullptr, 0, dtype::bf16);
  });
  m.on(queue_id::gather, [&](device::queue_ref q) { m.comm().all_gather(q, nullptr, 0); });
}

template <class F>
void check_comm_nothing() {
  by_rank sums(F::ranks, 1);
  F::run([&](auto& m) {
    collect_nothing(m);
    sums[m.comm().rank()] = m.comm().sum(0);
  });
  CHECK(sums == by_rank(F::ranks, 0));
}

/// Gathers on one queue while another reduces; ranks start the two in different order.
template <class Member>
std::uint64_t wrong_at_once(Member& m) {
  auto& c = m.comm();
  std::uint64_t const ranks = c.size();
  std::uint64_t wrong = 0;
  for (std::uint64_t round = 0; round < 20; ++round) {
    watched<float> data(4 * ranks);
    watched<float> staging(4 * ranks);
    watched<std::uint8_t> parts(ranks);
    for (std::uint64_t i = 0; i < 4 * ranks; ++i) {
      data.set(i, contribution<float>(c.rank(), i));
    }
    parts.set(c.rank(), static_cast<std::uint8_t>(c.rank() + 1));
    auto const reduce = [&](device::queue_ref q) {
      c.reduce_scatter_ordered(q, data.data(), staging.data(), 4 * ranks, dtype::f32);
    };
    auto const gather = [&](device::queue_ref q) { c.all_gather(q, parts.data(), 1); };
    if (c.rank() % 2 == 0) {
      m.at_once(queue_id::reduce, reduce, queue_id::gather, gather);
    } else {
      m.at_once(queue_id::gather, gather, queue_id::reduce, reduce);
    }
    for (std::uint64_t i = 0; i < ranks; ++i) {
      wrong += parts.get(i) == i + 1 ? 0U : 1U;
    }
    std::uint64_t const mine = 4 * std::uint64_t{c.rank()};
    wrong += same_bits(data.get(mine), folded_by_numbers<float>(c.size(), mine)) ? 0U : 1U;
  }
  return wrong;
}

template <class F>
void check_comm_queues() {
  by_rank wrong(F::ranks, 0);
  F::run([&](auto& m) { wrong[m.comm().rank()] = wrong_at_once(m); });
  CHECK(wrong == by_rank(F::ranks, 0));
}

/// What rank 0 gets to know when the last rank aborts instead of coming.
template <class Member>
std::string told_of_abort(Member& m) {
  auto& c = m.comm();
  if (c.rank() + 1 == c.size()) {
    c.abort("block 3 threw");
  }
  std::vector<std::byte> parts(c.size());
  try {
    m.on(queue_id::gather, [&](device::queue_ref q) { c.all_gather(q, parts.data(), 1); });
  } catch (comm::comm_error const& e) {
    return e.rank() + 1 == c.size() ? e.what() : "names another rank";
  }
  return "completed";
}

template <class F>
void check_comm_abort() {
  std::vector<std::string> told(F::ranks);
  F::run([&](auto& m) { told[m.comm().rank()] = told_of_abort(m); });
  for (std::string const& each : told) {
    if (F::ranks > 1) {
      CHECK(each.find("rank " + std::to_string(F::ranks - 1)) != std::string::npos);
      CHECK(each.find("block 3 threw") != std::string::npos);
    }
  }
}

/// A law as a test case.
#define PROTRAIN_COMM_LAW(says, law) \
  TEST_CASE_TEMPLATE_DEFINE(says, F, law) { check_##law<F>(); }
PROTRAIN_COMM_LAW("ranks are 0 to size - 1, each once", comm_ranks)
PROTRAIN_COMM_LAW("a reduction folds in rank order and rounds once", comm_reduce)
PROTRAIN_COMM_LAW("a gather puts every rank's bytes at its offset", comm_gather)
PROTRAIN_COMM_LAW("integers are summed exactly, on every rank alike", comm_sum)
PROTRAIN_COMM_LAW("collectives of nothing do nothing", comm_nothing)
PROTRAIN_COMM_LAW("queues don't wait for each other", comm_queues)
PROTRAIN_COMM_LAW("an abort reaches every rank, with rank and reason", comm_abort)

}  // namespace protrain::test

#define PROTRAIN_COMM_LAWS(...)                         \
  TEST_CASE_TEMPLATE_INVOKE(comm_ranks, __VA_ARGS__);   \
  TEST_CASE_TEMPLATE_INVOKE(comm_reduce, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(comm_gather, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(comm_sum, __VA_ARGS__);     \
  TEST_CASE_TEMPLATE_INVOKE(comm_nothing, __VA_ARGS__); \
  TEST_CASE_TEMPLATE_INVOKE(comm_queues, __VA_ARGS__);  \
  TEST_CASE_TEMPLATE_INVOKE(comm_abort, __VA_ARGS__)
