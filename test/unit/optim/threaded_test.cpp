// SPDX-License-Identifier: Apache-2.0
// Loops on 1, 2, 3 and 7 threads and with every kind of vectors: cuts at granules, and the same
// bits as one scalar loop.

#include "protrain/optim/threaded.hpp"

#include "protrain/core/float_environment.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/accumulate.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/norm.hpp"
#include "protrain/optim/pieces.hpp"
#include "protrain/optim/sgd.hpp"
#include "protrain/optim/vectors.hpp"
#include "test/support/contract.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace threaded_test {

namespace {

namespace optim = protrain::optim;
using optim::element_range;
using optim::exact_sum;
using optim::vectors;
using protrain::bfloat16;
using protrain::float16;
using protrain::device::workers;
using protrain_test::bits_of;
using protrain_test::spread_values;

constexpr std::uint32_t crews[] = {1, 2, 3, 7};
constexpr std::size_t large = 7 * optim::fewest_per_thread + 77;  // worth 7 threads

template <class T>
std::vector<T> of(std::vector<float> const& values) {
  std::vector<T> out;
  for (float const x : values) {
    out.push_back(protrain::narrow<T>(x));
  }
  return out;
}

/// The sum of squares by scalar granules, on one thread.
template <class T>
exact_sum by_granule(std::vector<T> const& g) {
  exact_sum total;
  for (std::size_t i = 0; i < g.size(); i += optim::granule) {
    total.add(
        optim::granule_sum(g.data() + i, std::min(optim::granule, g.size() - i), vectors::none));
  }
  return total;
}

template <class T>
void norm_is_threads_blind(std::vector<float> const& values) {
  std::vector<T> const g = of<T>(values);
  exact_sum const want = by_granule(g);
  for (std::uint32_t const threads : crews) {
    workers crew(threads);
    exact_sum got;
    optim::add_squares(crew, got, g.data(), g.size());
    CHECK(got == want);
    optim::add_squares(crew, got, g.data(), g.size());  // to what is there already
    exact_sum twice = want;
    twice.merge(want);
    CHECK(got == twice);
  }
}

template <class T>
void sums_are_vector_blind(std::size_t n, std::size_t offset) {
  std::vector<T> const g = of<T>(spread_values(21, n + offset, -14, 10));
  std::vector<float> const start = spread_values(22, n + offset, -14, 10);
  std::vector<float> want = start;
  for (std::size_t i = offset; i < n + offset; ++i) {
    want[i] = start[i] + protrain::widen(g[i]);
  }
  exact_sum squares;
  optim::add_squares(squares, g.data() + offset, n, vectors::none);
  for (vectors const with : {vectors::none, vectors::avx2, vectors::avx512}) {
    if (optim::supported(with)) {
      CAPTURE(name_of(with));
      std::vector<float> got = start;
      optim::add(got.data() + offset, g.data() + offset, n, with);
      CHECK(bits_of(got) == bits_of(want));
      exact_sum other;
      optim::add_squares(other, g.data() + offset, n, with);
      CHECK(other == squares);
    }
  }
}

template <class T>
void stores_are_threads_blind() {
  std::vector<T> const first = of<T>(spread_values(23, large, -14, 10));
  std::vector<T> const second = of<T>(spread_values(24, large, -14, 10));
  std::vector<float> stored;
  std::vector<float> added;
  for (std::size_t i = 0; i < large; ++i) {
    stored.push_back(protrain::widen(first[i]));
    added.push_back(stored[i] + protrain::widen(second[i]));
  }
  for (std::uint32_t const threads : crews) {
    workers crew(threads);
    std::vector<float> got(large, 5.0F);
    optim::store(crew, got.data(), first.data(), large);
    CHECK(bits_of(got) == bits_of(stored));
    optim::add(crew, got.data(), second.data(), large);
    CHECK(bits_of(got) == bits_of(added));
  }
}

}  // namespace

TEST_CASE("pieces make up the whole, in order, and are cut at granules") {
  for (std::uint64_t const n : {0U, 1U, 127U, 128U, 129U, 383U, 384U, 385U, 1000U, 100003U}) {
    for (std::uint32_t pieces = 1; pieces <= 9; ++pieces) {
      std::uint64_t next = 0;
      std::uint64_t least = n;
      std::uint64_t most = 0;
      for (std::uint32_t i = 0; i < pieces; ++i) {
        element_range const piece = optim::piece_of(n, pieces, i);
        REQUIRE(piece.begin == next);
        REQUIRE(piece.end >= piece.begin);
        REQUIRE((piece.begin % optim::granule == 0 || piece.begin == n));
        least = std::min(least, piece.size());
        most = std::max(most, piece.size());
        next = piece.end;
      }
      CHECK(next == n);
      CHECK(most - least < 2 * optim::granule);
    }
  }
  // 64-bit counts: 2^40 elements, and more.
  element_range const last = optim::piece_of((std::uint64_t{1} << 62U) + 5, 1000, 999);
  CHECK(last.end == (std::uint64_t{1} << 62U) + 5);
  CHECK(last.size() > (std::uint64_t{1} << 62U) / 1001);
}

TEST_CASE("a thread is woken for a piece that is worth it") {
  constexpr std::uint64_t worth = optim::fewest_per_thread;
  CHECK(optim::pieces_of(0, 16) == 1);
  CHECK(optim::pieces_of(2 * worth - 1, 16) == 1);
  CHECK(optim::pieces_of(2 * worth, 16) == 2);
  CHECK(optim::pieces_of(1000 * worth, 16) == 16);
  CHECK(optim::pieces_of(1000 * worth, 0) == 1);
  protrain::test::throwing_contracts const contracts;
  CHECK_THROWS_AS(optim::piece_of(10, 2, 2), protrain::test::contract_broken);
}

TEST_CASE("the norm has the same bits on any number of threads") {
  MESSAGE("seed " << protrain_test::seed);
  for (std::size_t const n : {std::size_t{0}, std::size_t{1000}, large}) {
    norm_is_threads_blind<float>(spread_values(20, n, -63, 20));
    norm_is_threads_blind<bfloat16>(spread_values(20, n, -63, 20));
    norm_is_threads_blind<float16>(spread_values(20, n, -14, 15));
  }
}

TEST_CASE("one element that isn't finite is seen in every thread's piece") {
  workers crew(7);
  std::vector<float> g(large, 1.0F);
  for (std::uint32_t piece = 0; piece < 7; ++piece) {
    for (float const bad : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
      std::size_t const at = optim::piece_of(large, 7, piece).end - 1;
      g[at] = bad;
      exact_sum total;
      optim::add_squares(crew, total, g.data(), g.size());
      CHECK(total.non_finite() == 1);
      g[at] = 1.0F;
    }
  }
}

TEST_CASE("granules and sums have the scalar bits with every kind of vectors") {
  for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 127U, 128U, 129U, 1000U}) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      sums_are_vector_blind<float>(n, offset);
      sums_are_vector_blind<bfloat16>(n, offset);
      sums_are_vector_blind<float16>(n, offset);
    }
  }
}

TEST_CASE("a granule's lanes are added in the documented order: rounding would show another") {
  // Each lane alone, far above and below its neighbours.
  for (vectors const with : {vectors::none, vectors::avx2, vectors::avx512}) {
    if (!optim::supported(with)) {
      continue;
    }
    for (std::uint64_t stream = 0; stream < 200; ++stream) {
      std::vector<float> const g = spread_values(1000 + stream, 128, -12, 12);
      CHECK(bits_of(optim::granule_sum(g.data(), 128, with)) ==
            bits_of(optim::granule_sum(g.data(), 128, vectors::none)));
    }
  }
}

TEST_CASE("gradient stores have the same bits on any number of threads") {
  stores_are_threads_blind<float>();
  stores_are_threads_blind<bfloat16>();
  stores_are_threads_blind<float16>();
}

TEST_CASE("a rule without vectors, too: SGD on threads") {
  auto const step = optim::sgd{}.prepare(1e-2, 3, true);
  std::vector<bfloat16> const g = of<bfloat16>(spread_values(25, large, -10, 4));
  std::vector<float> const p = spread_values(26, large, -10, 4);
  std::vector<float> const u = spread_values(27, large, -10, 4);
  std::vector<float> p_want = p;
  std::vector<float> u_want = u;
  optim::update_fp32<optim::sgd>(step, 0.5F, g.data(), p_want.data(), {u_want.data()}, large);
  for (std::uint32_t const threads : crews) {
    workers crew(threads);
    std::vector<float> p_got = p;
    std::vector<float> u_got = u;
    optim::update_range<optim::sgd>(
        crew, step, 0.5F, g.data(), optim::whole_master{p_got.data()}, {u_got.data()}, large);
    CHECK(bits_of(p_got) == bits_of(p_want));
    CHECK(bits_of(u_got) == bits_of(u_want));
  }
}

}  // namespace threaded_test
