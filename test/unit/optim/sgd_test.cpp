// SPDX-License-Identifier: Apache-2.0
// SGD with momentum: the laws of a rule, and fp64.

#include "protrain/optim/sgd.hpp"

#include "protrain/optim/update.hpp"
#include "test/law/update_rule.hpp"
#include "test/support/contract.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace sgd_test {

namespace {

using protrain::optim::sgd;
using protrain_test::bits_of;
using protrain_test::spread_values;

constexpr double u = 0x1p-24;  // relative error of one fp32 rounding

double wide(float x) { return static_cast<double>(x); }

}  // namespace

TEST_CASE("the laws hold for SGD with and without momentum") {
  CHECK(protrain::test::broken_update_rule_law(sgd{.momentum = 0}) == "");
  CHECK(protrain::test::broken_update_rule_law(sgd{.momentum = 0.99, .weight_decay = 0.1}) == "");
}

TEST_CASE("an element equals fp64 within the roundings of the contract") {
  MESSAGE("seed " << protrain_test::seed);
  constexpr std::size_t n = 4000;
  std::vector<float> const g = spread_values(41, n, -20, 10);
  std::vector<float> const p = spread_values(42, n, -12, 4);
  std::vector<float> const m = spread_values(43, n, -20, 10);
  auto const step = sgd{.weight_decay = 0.1}.prepare(1e-2, 1, true);
  for (std::size_t i = 0; i < n; ++i) {
    float after = p[i];
    protrain::optim::element_state<sgd> state{m[i]};
    sgd::element(step, 0.3F, g[i], after, state);
    double const gradient = wide(0.3F) * wide(g[i]);
    double const momentum = wide(step.momentum) * wide(m[i]) + gradient;
    double const m_bound = u * std::abs(gradient) + u * std::abs(momentum);
    REQUIRE(std::abs(wide(state[0]) - momentum) <= 1.01 * m_bound + 0x1p-126);
    double const kept = wide(step.k) * wide(p[i]);
    double const want = kept - wide(step.lr) * momentum;
    double const p_bound = wide(step.lr) * m_bound + u * std::abs(kept) + u * std::abs(want);
    REQUIRE(std::abs(wide(after) - want) <= 1.01 * p_bound + 0x1p-149);
  }
}

TEST_CASE("a thousand steps follow fp64") {
  // Powers of two: the numbers of a step are exact.
  sgd const rule{.momentum = 0.75, .weight_decay = 0x1p-6};
  auto const step = rule.prepare(0x1p-8, 1, true);
  CHECK(step == protrain::optim::sgd_step{.lr = 0x1p-8F, .k = 1 - 0x1p-14F, .momentum = 0.75F});
  CHECK(rule.prepare(0x1p-8, 1, false).k == 1.0F);
  std::vector<float> const g = spread_values(44, 1000, -6, 0);
  float p = 1;
  protrain::optim::element_state<sgd> state{};
  double exact = 1;
  double velocity = 0;
  for (float const x : g) {
    sgd::element(step, 1.0F, x, p, state);
    velocity = 0.75 * velocity + wide(x);
    exact = exact * (1 - 0x1p-14) - 0x1p-8 * velocity;
  }
  CHECK(std::abs(wide(p) - exact) < 1000 * u * 4);
}

TEST_CASE("all formats and gradient types give the element's bits") {
  constexpr std::size_t n = 133;
  auto const step = sgd{.weight_decay = 0.1}.prepare(1e-2, 1, true);
  std::vector<float> const before = spread_values(45, n, -12, 4);
  std::vector<protrain::bfloat16> const g = protrain_test::rounded(spread_values(46, n, -20, 10));
  std::vector<float> want = before;
  std::vector<float> want_m = spread_values(47, n, -20, 10);
  std::vector<float> m = want_m;
  std::vector<float> split_m = want_m;
  std::vector<float> separate_m = want_m;
  std::vector<float> p = before;
  std::vector<float> master = before;
  std::vector<protrain::bfloat16> hi(n);
  std::vector<std::int16_t> lo(n, 0);
  std::vector<protrain::float16> half(n);
  for (std::size_t i = 0; i < n; ++i) {
    protrain::optim::split_halves{hi.data(), lo.data()}.store(i, before[i]);
    protrain::optim::element_state<sgd> state{want_m[i]};
    sgd::element(step, 0.5F, to_float(g[i]), want[i], state);
    want_m[i] = state[0];
  }
  protrain::optim::update_fp32<sgd>(step, 0.5F, g.data(), p.data(), {m.data()}, n);
  protrain::optim::update_split<sgd>(
      step, 0.5F, g.data(), hi.data(), lo.data(), {split_m.data()}, n);
  protrain::optim::update_separate<sgd>(
      step, 0.5F, g.data(), master.data(), half.data(), {separate_m.data()}, n);
  std::vector<float> merged(n, 0.0F);
  for (std::size_t i = 0; i < n; ++i) {
    merged[i] = protrain::merge_master(hi[i], lo[i]);
    REQUIRE(half[i] == protrain::to_float16(want[i]));
  }
  for (std::vector<float> const* got : {&p, &merged, &master}) {
    CHECK(bits_of(*got) == bits_of(want));
  }
  for (std::vector<float> const* got : {&m, &split_m, &separate_m}) {
    CHECK(bits_of(*got) == bits_of(want_m));
  }
}

TEST_CASE("hyper-parameters outside their range are refused") {
  protrain::test::throwing_contracts const armed;
  CHECK_THROWS_AS(sgd{}.prepare(1e-3, 0, true), protrain::test::contract_broken);
  CHECK_THROWS_AS(sgd{.momentum = 1}.prepare(1e-3, 1, true), protrain::test::contract_broken);
}

}  // namespace sgd_test
