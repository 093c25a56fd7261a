// SPDX-License-Identifier: Apache-2.0
// The gradient store: fp32 sums in the caller's order, and the copy that needs no sum.

#include "protrain/optim/accumulate.hpp"

#include "protrain/core/bfloat16.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace accumulate_test {

namespace {

using protrain::bfloat16;
using protrain::to_bfloat16;
using protrain_test::bits_of;
using protrain_test::seed;
using protrain_test::spread_values;

/// The accumulator after one constant contribution per micro-batch.
template <class T>
float accumulated(std::vector<T> const& contributions) {
  std::vector<float> accumulator(17, 1e30F);  // what lay there before doesn't count
  for (std::size_t k = 0; k < contributions.size(); ++k) {
    std::vector<T> const fresh(17, contributions[k]);
    if (k == 0) {
      protrain::optim::store(accumulator.data(), fresh.data(), 17);
    } else {
      protrain::optim::add(accumulator.data(), fresh.data(), 17);
    }
  }
  for (float const x : accumulator) {
    CHECK(bits_of(x) == bits_of(accumulator[0]));
  }
  return accumulator[0];
}

std::vector<bfloat16> narrow(std::vector<float> const& values) {
  return protrain_test::rounded(values);
}

}  // namespace

TEST_CASE("four micro-batches add up in fp32") {
  CHECK(accumulated<float>({1, 2, 4, 8}) == 15.0F);
  CHECK(accumulated(narrow({1, 2, 4, 8})) == 15.0F);
  // bf16 has 8 bits of precision and would lose every one of the small ones.
  CHECK(accumulated(narrow({1, 0x1p-9F, 0x1p-9F, 0x1p-9F})) == 1.0F + 3 * 0x1p-9F);
}

TEST_CASE("the sum is a left fold in the order of the calls") {
  CHECK(accumulated<float>({1, 0x1p-24F, 0x1p-24F}) == 1.0F);
  CHECK(accumulated<float>({0x1p-24F, 0x1p-24F, 1}) == 1.0F + 0x1p-23F);
}

TEST_CASE("odd sizes and offsets, nothing outside is written") {
  MESSAGE("seed " << seed);
  for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 1000U}) {
    std::vector<bfloat16> const c = narrow(spread_values(1, n, -20, 10));
    for (std::size_t offset = 0; offset < 16; ++offset) {
      std::vector<float> accumulator(offset + n + 1, -77.0F);
      protrain::optim::store(accumulator.data() + offset, c.data(), n);
      protrain::optim::add(accumulator.data() + offset, c.data(), n);
      std::vector<float> want(offset + n + 1, -77.0F);
      for (std::size_t i = 0; i < n; ++i) {
        want[offset + i] = 2 * to_float(c[i]);
      }
      CHECK(bits_of(accumulator) == bits_of(want));
    }
  }
}

TEST_CASE("the first contribution keeps the sign of zero") {
  CHECK(bits_of(accumulated<float>({-0.0F})) == 0x80000000U);
  CHECK(bits_of(accumulated<bfloat16>({bfloat16{0x8000}})) == 0x80000000U);
}

TEST_CASE("a single contribution is kept in gradient dtype as it is") {
  std::vector<bfloat16> const c{{0x3F80}, {0x8000}, {0x0001}, {0x7F80}, {0xFFFF}};
  std::vector<bfloat16> kept(5);
  protrain::optim::store(kept.data(), c.data(), 5);
  CHECK(kept == c);
}

}  // namespace accumulate_test
