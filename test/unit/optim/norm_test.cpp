// SPDX-License-Identifier: Apache-2.0
// The granule's tree against its definition, norms against exact arithmetic.

#include "protrain/optim/norm.hpp"

#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace norm_test {

namespace {

using protrain::bfloat16;
using protrain::optim::add_squares;
using protrain::optim::exact_sum;
using protrain::optim::granule_sum;
using protrain::optim::norm;
using protrain_test::bits_of;
using protrain_test::seed;
using protrain_test::spread_values;

/// What lane 0 of a warp holds: its own chain, plus the partner's tree at each level.
float tree(std::vector<float> const& g, std::size_t lane, std::size_t offset) {
  if (offset == 32) {
    float chain = 0.0F;
    for (std::size_t i = lane; i < 128; i += 32) {
      float const x = i < g.size() ? g[i] : 0.0F;
      chain = std::fma(x, x, chain);
    }
    return chain;
  }
  float const mine = tree(g, lane, 2 * offset);
  return mine + tree(g, lane ^ offset, 2 * offset);
}

template <class T>
exact_sum sum_of(std::vector<T> const& gradient) {
  exact_sum total;
  add_squares(total, gradient.data(), gradient.size());
  return total;
}

}  // namespace

TEST_CASE("a granule is summed by the documented tree, whole or partial, in both dtypes") {
  MESSAGE("seed " << seed);
  for (std::size_t const n : {0U, 1U, 31U, 32U, 33U, 96U, 97U, 127U, 128U}) {
    std::vector<float> const g = spread_values(n, n, -10, 10);
    CHECK(bits_of(granule_sum(g.data(), n)) == bits_of(tree(g, 0, 1)));
    std::vector<bfloat16> const narrow = protrain_test::rounded(g);
    std::vector<float> wide;
    for (bfloat16 const x : narrow) {
      wide.push_back(to_float(x));
    }
    CHECK(bits_of(granule_sum(narrow.data(), n)) == bits_of(tree(wide, 0, 1)));
  }
}

TEST_CASE("every lane of a butterfly ends with the same sum") {
  std::vector<float> const g = spread_values(7, 128, -20, 20);
  for (std::size_t lane = 0; lane < 32; ++lane) {
    CHECK(bits_of(tree(g, lane, 1)) == bits_of(granule_sum(g.data(), 128)));
  }
}

TEST_CASE("the norm is the sum's root at all sizes, within the rounding of one tree") {
  for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 128U, 129U, 255U, 256U, 100003U}) {
    for (int const spread : {0, 10}) {  // exponents within 2^-10 .. 2^10
      std::vector<float> const g = spread_values(n, n, -spread, spread);
      double exact = 0.0;
      for (float const x : g) {
        exact += static_cast<double>(x) * static_cast<double>(x);
      }
      double const got = static_cast<double>(norm(sum_of(g)));
      // Four roundings in a chain, five levels, one at the end; the root halves them.
      CHECK(std::abs(got - std::sqrt(exact)) <= 6 * 0x1p-24 * std::sqrt(exact));
    }
  }
}

TEST_CASE("equal gradients: 3 everywhere over 10,000 elements gives 300") {
  CHECK(norm(sum_of(std::vector<float>(10000, 3.0F))) == 300.0F);
  CHECK(norm(sum_of(std::vector<bfloat16>(10000, protrain::to_bfloat16(3.0F)))) == 300.0F);
}

TEST_CASE("the norm does not depend on shards, their order or the number of ranks") {
  constexpr std::size_t n = 128 * 200 + 77;
  std::vector<float> const g = spread_values(3, n, -63, 20);
  exact_sum const whole = sum_of(g);
  for (std::size_t const ranks : {1U, 2U, 3U, 5U, 8U}) {
    std::size_t const shard = protrain::ceil_div(n, 128 * ranks) * 128;
    exact_sum merged;
    for (std::size_t rank = ranks; rank-- > 0;) {
      std::size_t const begin = std::min(n, rank * shard);
      exact_sum part;
      add_squares(part, g.data() + begin, std::min(n, begin + shard) - begin);
      merged.merge(part);
    }
    CHECK(merged == whole);
  }
}

TEST_CASE("sums depend on addresses: the norm does not") {
  std::vector<float> const g = spread_values(4, 1000, -10, 10);
  for (std::size_t offset = 0; offset < 16; ++offset) {
    std::vector<float> moved(offset, 1e30F);
    moved.insert(moved.end(), g.begin(), g.end());
    exact_sum total;
    add_squares(total, moved.data() + offset, g.size());
    CHECK(total == sum_of(g));
  }
}

TEST_CASE("zero padding inside the last granule adds nothing") {
  std::vector<float> g = spread_values(5, 130, -10, 10);
  exact_sum const bare = sum_of(g);
  g.resize(256, 0.0F);
  CHECK(sum_of(g) == bare);
}

TEST_CASE("a value that is not finite anywhere gives the canonical NaN") {
  for (std::size_t const at : {0U, 5U, 127U, 128U, 299U}) {
    for (float const bad : {std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN(),
                            0x1p65F /* its square overflows */}) {
      std::vector<float> g(300, 1.0F);
      g[at] = bad;
      exact_sum const total = sum_of(g);
      CHECK(total.non_finite() == 1);
      CHECK(bits_of(norm(total)) == 0x7FC00000U);
    }
  }
  CHECK(bits_of(norm(exact_sum{})) == 0);
}

TEST_CASE("a granule longer than 128 elements is refused") {
  struct refused {};
  auto const old =
      protrain::set_violation_handler([](protrain::violation const&) { throw refused{}; });
  std::vector<float> const g(129, 0.0F);
  CHECK_THROWS_AS(granule_sum(g.data(), 129), refused);
  protrain::set_violation_handler(old);
}

}  // namespace norm_test
