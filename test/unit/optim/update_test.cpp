// SPDX-License-Identifier: Apache-2.0
// Loops over elements: every state format, gradient dtype, odd size and offset gives the bits of
// the element function, and touches nothing else.

#include "protrain/optim/update.hpp"

#include "protrain/optim/adamw.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using protrain::bfloat16;
using protrain::merge_master;
using protrain::split_master;
using protrain::split_value;
using protrain::optim::adamw;
using protrain::optim::adamw_element;
using protrain::optim::adamw_step;
using protrain_test::bits_of;
using protrain_test::seed;
using protrain_test::spread_values;

constexpr float guard = -77.0F;  // around every array

struct state {
  std::vector<float> p;
  std::vector<float> m;
  std::vector<float> v;
};

/// Values for n elements, with guards: `offset` before them and one after.
state make_state(std::size_t n, std::size_t offset) {
  auto const padded = [&](std::vector<float> const& values) {
    std::vector<float> all(offset, guard);
    all.insert(all.end(), values.begin(), values.end());
    all.push_back(guard);
    return all;
  };
  return {padded(spread_values(1, n, -12, 4)),
          padded(spread_values(2, n, -20, 10)),
          padded(protrain_test::magnitudes(spread_values(3, n, -40, 20)))};
}

template <class T>
state expected(
    adamw_step const& step, float s, std::vector<T> const& g, state result, std::size_t offset) {
  for (std::size_t i = 0; i < g.size(); ++i) {
    std::size_t const at = offset + i;
    adamw_element(step, s, protrain::optim::widen(g[i]), result.p[at], result.m[at], result.v[at]);
  }
  return result;
}

void check_equal(state const& got, state const& want) {
  CHECK(bits_of(got.p) == bits_of(want.p));
  CHECK(bits_of(got.m) == bits_of(want.m));
  CHECK(bits_of(got.v) == bits_of(want.v));
}

template <class T>
void check_formats(std::vector<T> const& g, std::size_t offset) {
  std::size_t const n = g.size();
  std::size_t const all = offset + n + 1;
  adamw_step const step = adamw{}.prepare(1e-3, 10, true);
  float const s = 0.75F;
  state const before = make_state(n, offset);
  state const want = expected(step, s, g, before, offset);

  state fp32 = before;
  protrain::optim::update_fp32(
      step, s, g.data(), fp32.p.data() + offset, fp32.m.data() + offset, fp32.v.data() + offset, n);
  check_equal(fp32, want);

  state split = before;
  std::vector<bfloat16> hi(all);
  std::vector<std::int16_t> lo(all, 0);
  for (std::size_t i = 0; i < all; ++i) {
    split_value const halves = split_master(split.p[i]);
    hi[i] = halves.hi;
    lo[i] = halves.lo;
  }
  protrain::optim::update_split(step,
                                s,
                                g.data(),
                                hi.data() + offset,
                                lo.data() + offset,
                                split.m.data() + offset,
                                split.v.data() + offset,
                                n);
  for (std::size_t i = 0; i < all; ++i) {
    split.p[i] = merge_master(hi[i], lo[i]);
  }
  check_equal(split, want);

  state separate = before;
  std::vector<bfloat16> value(all, bfloat16{0x1234});
  protrain::optim::update_separate(step,
                                   s,
                                   g.data(),
                                   separate.p.data() + offset,
                                   value.data() + offset,
                                   separate.m.data() + offset,
                                   separate.v.data() + offset,
                                   n);
  check_equal(separate, want);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < all; ++i) {
    bool const inside = i >= offset && i < offset + n;
    wrong += value[i] != (inside ? hi[i] : bfloat16{0x1234}) ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("all formats and dtypes give the element's bits at odd sizes and offsets") {
  MESSAGE("seed " << seed);
  for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U, 1000U}) {
    for (std::size_t offset = 0; offset < 16; ++offset) {
      std::vector<float> const g = spread_values(4, n, -20, 10);
      check_formats(g, offset);
      check_formats(protrain_test::rounded(g), offset);
    }
  }
}

TEST_CASE("a million and three elements, in one call or cut anywhere") {
  constexpr std::size_t n = 1000003;
  std::vector<bfloat16> const g = protrain_test::rounded(spread_values(4, n, -20, 10));
  adamw_step const step = adamw{}.prepare(1e-3, 100000, true);
  state const before = make_state(n, 0);
  state whole = before;
  protrain::optim::update_fp32(
      step, 1.0F, g.data(), whole.p.data(), whole.m.data(), whole.v.data(), n);
  check_equal(whole, expected(step, 1.0F, g, before, 0));
  state cut = before;
  for (std::size_t begin = 0; begin < n; begin += 65537) {
    std::size_t const size = begin + 65537 < n ? 65537 : n - begin;
    protrain::optim::update_fp32(step,
                                 1.0F,
                                 g.data() + begin,
                                 cut.p.data() + begin,
                                 cut.m.data() + begin,
                                 cut.v.data() + begin,
                                 size);
  }
  check_equal(cut, whole);
}

TEST_CASE("with no gradient and no decay a split master keeps its bits") {
  std::vector<bfloat16> hi;
  std::vector<std::int16_t> lo;
  for (float const x : spread_values(5, 1000, -126, 127)) {
    hi.push_back(split_master(x).hi);
    lo.push_back(split_master(x).lo);
  }
  std::vector<bfloat16> const hi_before = hi;
  std::vector<std::int16_t> const lo_before = lo;
  std::vector<float> m(1000, 0.0F);
  std::vector<float> v(1000, 0.0F);
  std::vector<bfloat16> const g(1000, bfloat16{0});
  adamw_step const step = adamw{}.prepare(1e-3, 1, false);
  protrain::optim::update_split(
      step, 1.0F, g.data(), hi.data(), lo.data(), m.data(), v.data(), 1000);
  CHECK(hi == hi_before);
  CHECK(lo == lo_before);
}
