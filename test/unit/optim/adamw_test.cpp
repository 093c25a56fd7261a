// SPDX-License-Identifier: Apache-2.0
// AdamW's hyper-parameters and element step against fp64, and its denormal and NaN rules.

#include "protrain/optim/adamw.hpp"

#include "test/unit/optim/adamw_reference.hpp"
#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace adamw_test {

namespace {

using protrain::optim::adamw;
using protrain::optim::adamw_element;
using protrain::optim::adamw_step;
using protrain_test::bits_of;
using protrain_test::from_bits;
using protrain_test::seed;
using protrain_test::spread_values;

constexpr double u = 0x1p-24;  // relative error of one fp32 rounding

/// |x - exact| within one fp32 rounding, and a little for fp64's own errors.
bool rounds_to(float x, double exact) {
  return std::abs(static_cast<double>(x) - exact) <= std::abs(exact) * u * (1 + 1e-6);
}

using element = protrain_test::adamw_values;

void check_element(adamw_step const& step, float s, float gradient, element const& before) {
  element after = before;
  adamw_element(step, s, gradient, after.p, after.m, after.v);
  REQUIRE(protrain_test::is_step(step, s, gradient, before, after));
}

}  // namespace

TEST_CASE("hyper-parameters are fp64 results rounded once") {
  adamw const rule{};
  for (std::int64_t const t : {1, 2, 3, 10, 1000, 100000}) {
    adamw_step const step = rule.prepare(3e-4, t, true);
    auto const steps = static_cast<double>(t);
    CHECK(rounds_to(step.a, 3e-4 / (1 - std::pow(0.9, steps))));
    CHECK(rounds_to(step.r, 1 / std::sqrt(1 - std::pow(0.999, steps))));
    CHECK(rounds_to(step.k, 1 - 3e-4 * 0.01));
    CHECK(step.b1 == 0.9F);
    CHECK(step.b2 == 0.999F);
    CHECK(rounds_to(step.one_minus_b1, 0.1));  // 1 - 0.9F would be 0.100000024
    CHECK(rounds_to(step.one_minus_b2, 0.001));
    CHECK(step.eps == 1e-8F);
    CHECK(rule.prepare(3e-4, t, false).k == 1.0F);
  }
}

TEST_CASE("bias correction vanishes for large t, also past 32 bits") {
  adamw_step const step = adamw{}.prepare(1e-3, std::int64_t{1} << 40U, true);
  CHECK(step.a == 1e-3F);
  CHECK(step.r == 1.0F);
}

TEST_CASE("the first step moves by the learning rate against the gradient's sign") {
  adamw_step const step = adamw{.weight_decay = 0}.prepare(1e-3, 1, true);
  for (float const gradient : {1e-3F, 1.0F, 1e3F, -1e-3F, -1e3F}) {
    element e{0.5F, 0, 0};
    adamw_element(step, 1.0F, gradient, e.p, e.m, e.v);
    CHECK(e.p == doctest::Approx(gradient > 0 ? 0.499 : 0.501).epsilon(2e-5));
  }
}

TEST_CASE("an element equals fp64 within the roundings of the contract") {
  MESSAGE("seed " << seed);
  constexpr std::size_t n = 4000;
  for (std::int64_t const t : {1, 10, 100000}) {
    adamw_step const step = adamw{}.prepare(1e-3, t, true);
    std::vector<float> const g = spread_values(1, n, -20, 10);
    std::vector<float> const p = spread_values(2, n, -12, 4);
    std::vector<float> const m = spread_values(3, n, -20, 10);
    std::vector<float> const v = protrain_test::magnitudes(spread_values(4, n, -40, 20));
    for (std::size_t i = 0; i < n; ++i) {
      check_element(step, 1.0F, g[i], {p[i], m[i], v[i]});
      check_element(step, 0.3F, g[i], {p[i], m[i], v[i]});
      check_element(step, 1.0F, 0.0F, {p[i], m[i], v[i]});
    }
  }
}

TEST_CASE("ten thousand steps follow fp64 AdamW") {
  // Powers of two: k is exact, so that its rounding doesn't grow with the steps.
  constexpr double lr = 0x1p-13;
  adamw const rule{.weight_decay = 0x1p-4};
  element e{1.0F, 0, 0};
  double p = 1;
  double m = 0;
  double v = 0;
  std::vector<float> const g = spread_values(9, 10000, -6, 0);
  for (std::size_t i = 0; i < g.size(); ++i) {
    auto const t = static_cast<std::int64_t>(i) + 1;
    adamw_element(rule.prepare(lr, t, true), 1.0F, g[i], e.p, e.m, e.v);
    double const grad = static_cast<double>(g[i]);
    m = 0.9 * m + 0.1 * grad;
    v = 0.999 * v + 0.001 * grad * grad;
    double const m_hat = m / (1 - std::pow(0.9, static_cast<double>(t)));
    double const v_hat = v / (1 - std::pow(0.999, static_cast<double>(t)));
    p = p * (1 - lr * 0x1p-4) - lr * m_hat / (std::sqrt(v_hat) + 1e-8);
  }
  // 1 - 0.999F is 1.3e-5 off 0.001, which v shows in full and a move by half.
  CHECK(std::abs(static_cast<double>(e.p) - p) < 3e-5);
  CHECK(static_cast<double>(e.v) == doctest::Approx(v).epsilon(1e-4));
}

TEST_CASE("state below 2^-126 is stored as +0, at and above it kept") {
  // b1 = b2 = 0.5 with a zero gradient halves the state exactly.
  adamw_step const step = adamw{.beta1 = 0.5, .beta2 = 0.5}.prepare(1e-3, 1, true);
  element e{1.0F, -0x1p-125F, 0x1p-125F};
  adamw_element(step, 1.0F, 0.0F, e.p, e.m, e.v);
  CHECK(e.m == -0x1p-126F);
  CHECK(e.v == 0x1p-126F);
  adamw_element(step, 1.0F, 0.0F, e.p, e.m, e.v);
  CHECK(bits_of(e.m) == 0);  // +0, though m was negative
  CHECK(bits_of(e.v) == 0);
}

TEST_CASE("a denormal parameter is not flushed, and denormal gradients count") {
  adamw_step const step = adamw{.weight_decay = 0}.prepare(0.0, 1, true);
  element e{from_bits(0x00000123U), 0, 0};
  adamw_element(step, 1.0F, 0.0F, e.p, e.m, e.v);
  CHECK(bits_of(e.p) == 0x00000123U);
  float const denormal = from_bits(0x00400000U);  // 2^-127; s brings it back
  adamw_element(step, 0x1p120F, denormal, e.p, e.m, e.v);
  CHECK(e.m == doctest::Approx(0.1 * 0x1p-7));
}

TEST_CASE("zero gradients end in denormals: not in 2,000 steps, ever") {
  adamw const rule{};
  std::vector<float> const first = spread_values(11, 64, -70, 10);
  for (float const gradient : first) {
    element e{1.0F, 0, 0};
    for (std::int64_t t = 1; t <= 2000; ++t) {
      adamw_element(rule.prepare(1e-3, t, true), 1.0F, t == 1 ? gradient : 0.0F, e.p, e.m, e.v);
      for (float const x : {e.m, e.v}) {
        if (x != 0.0F && !std::isnormal(x)) {
          FAIL("denormal state at step " << t);
        }
      }
    }
    CHECK(bits_of(e.m) == 0);
    CHECK(std::isnormal(e.p));
  }
}

TEST_CASE("every NaN is stored as the canonical one") {
  adamw_step const step = adamw{}.prepare(1e-3, 1, true);
  for (std::uint32_t const nan : {0x7F800001U, 0x7FFFFFFFU, 0xFFC00000U, 0xFF812345U}) {
    element e{1.0F, 0.5F, 0.5F};
    adamw_element(step, 1.0F, from_bits(nan), e.p, e.m, e.v);
    CHECK(bits_of(e.p) == 0x7FC00000U);
    CHECK(bits_of(e.m) == 0x7FC00000U);
    CHECK(bits_of(e.v) == 0x7FC00000U);
    e = {from_bits(nan), 0.5F, 0.5F};
    adamw_element(step, 1.0F, 0.25F, e.p, e.m, e.v);
    CHECK(bits_of(e.p) == 0x7FC00000U);
    CHECK(std::isfinite(e.m));
  }
  element e{1.0F, 0.0F, 0.0F};  // inf - inf and inf / inf inside
  adamw_element(step, 1.0F, std::numeric_limits<float>::infinity(), e.p, e.m, e.v);
  CHECK(bits_of(e.p) == 0x7FC00000U);
  CHECK(std::isinf(e.v));
}

TEST_CASE("hyper-parameters outside their range are refused") {
  struct refused {};
  auto const old =
      protrain::set_violation_handler([](protrain::violation const&) { throw refused{}; });
  CHECK_THROWS_AS(adamw{}.prepare(1e-3, 0, true), refused);
  CHECK_THROWS_AS((adamw{.beta1 = 1.0}.prepare(1e-3, 1, true)), refused);
  CHECK_THROWS_AS((adamw{.beta2 = -0.1}.prepare(1e-3, 1, true)), refused);
  CHECK_THROWS_AS((adamw{.eps = 0}.prepare(1e-3, 1, true)), refused);
  CHECK_THROWS_AS((adamw{.eps = 1e-60}.prepare(1e-3, 1, true)), refused);
  protrain::set_violation_handler(old);
}

}  // namespace adamw_test
