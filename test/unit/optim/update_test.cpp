// SPDX-License-Identifier: Apache-2.0
// Loops over elements: every state format, gradient dtype, odd size and offset gives the bits of
// the element function, and touches nothing else.

#include "protrain/optim/update.hpp"

#include "protrain/optim/adamw.hpp"
#include "test/unit/optim/adamw_reference.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace update_test {

namespace {

using protrain::bfloat16;
using protrain::float16;
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

/// Elements that are no step within fp64's reach.
template <class T>
std::uint64_t far_from_fp64(adamw_step const& step,
                            float s,
                            std::vector<T> const& g,
                            state const& before,
                            state const& after,
                            std::size_t offset) {
  std::uint64_t wrong = 0;
  for (std::size_t i = 0; i < g.size(); ++i) {
    std::size_t const at = offset + i;
    wrong += protrain_test::is_step(step,
                                    s,
                                    protrain::widen(g[i]),
                                    {before.p[at], before.m[at], before.v[at]},
                                    {after.p[at], after.m[at], after.v[at]})
                 ? 0U
                 : 1U;
  }
  return wrong;
}

void check_equal(state const& got, state const& want) {
  CHECK(bits_of(got.p) == bits_of(want.p));
  CHECK(bits_of(got.m) == bits_of(want.m));
  CHECK(bits_of(got.v) == bits_of(want.v));
}

template <class T>
void check_split(adamw_step const& step,
                 float s,
                 T const* g,
                 std::size_t n,
                 std::size_t offset,
                 state split,
                 state const& want) {
  std::vector<bfloat16> hi(split.p.size());
  std::vector<std::int16_t> lo(split.p.size(), 0);
  for (std::size_t i = 0; i < hi.size(); ++i) {
    split_value const halves = split_master(split.p[i]);
    hi[i] = halves.hi;
    lo[i] = halves.lo;
  }
  protrain::optim::update_split(step,
                                s,
                                g,
                                hi.data() + offset,
                                lo.data() + offset,
                                split.m.data() + offset,
                                split.v.data() + offset,
                                n);
  for (std::size_t i = 0; i < hi.size(); ++i) {
    split.p[i] = merge_master(hi[i], lo[i]);
  }
  check_equal(split, want);
}

template <class V, class T>
void check_separate(adamw_step const& step,
                    float s,
                    T const* g,
                    std::size_t n,
                    std::size_t offset,
                    state separate,
                    state const& want) {
  std::vector<V> value(separate.p.size(), V{0x1234});
  protrain::optim::update_separate(step,
                                   s,
                                   g,
                                   separate.p.data() + offset,
                                   value.data() + offset,
                                   separate.m.data() + offset,
                                   separate.v.data() + offset,
                                   n);
  check_equal(separate, want);
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < value.size(); ++i) {
    bool const inside = i >= offset && i < offset + n;
    wrong += value[i] != (inside ? protrain::narrow<V>(want.p[i]) : V{0x1234}) ? 1U : 0U;
  }
  CHECK(wrong == 0);
}

/// Step `t` of `values`, in every format; the gradients start `shift` elements into their array.
template <class T>
void check_formats(std::vector<float> const& values,
                   std::size_t offset,
                   std::size_t shift,
                   std::int64_t t) {
  std::size_t const n = values.size();
  std::vector<T> g;
  for (float const x : values) {
    g.push_back(protrain::narrow<T>(x));
  }
  std::vector<T> shifted(shift);
  shifted.insert(shifted.end(), g.begin(), g.end());
  adamw_step const step = adamw{}.prepare(1e-3, t, true);
  float const s = 0.75F;
  state const before = make_state(n, offset);
  state const want = expected(step, s, g, before, offset);
  CHECK(far_from_fp64(step, s, g, before, want, offset) == 0);

  state fp32 = before;
  protrain::optim::update_fp32(step,
                               s,
                               shifted.data() + shift,
                               fp32.p.data() + offset,
                               fp32.m.data() + offset,
                               fp32.v.data() + offset,
                               n);
  check_equal(fp32, want);
  check_split(step, s, shifted.data() + shift, n, offset, before, want);
  check_separate<bfloat16>(step, s, shifted.data() + shift, n, offset, before, want);
  check_separate<float16>(step, s, shifted.data() + shift, n, offset, before, want);
}

void check_gradient_types(std::size_t n, std::size_t offset, std::int64_t t) {
  CAPTURE(n);
  CAPTURE(offset);
  std::vector<float> const g = spread_values(4, n, -20, 10);
  std::size_t const shift = (5 * offset + 3) % 16;
  check_formats<float>(g, offset, shift, t);
  check_formats<bfloat16>(g, offset, shift, t);
  check_formats<float16>(g, offset, shift, t);
}

}  // namespace

TEST_CASE("all formats and dtypes give the element's bits, and fp64's, at odd sizes and offsets") {
  MESSAGE("seed " << seed);
  for (std::int64_t const t : {1, 10, 100000}) {
    for (std::size_t const n : {0U, 1U, 7U, 8U, 15U, 16U, 17U}) {
      for (std::size_t offset = 0; offset < 16; ++offset) {
        check_gradient_types(n, offset, t);
      }
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

}  // namespace update_test
