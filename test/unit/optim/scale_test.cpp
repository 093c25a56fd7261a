// SPDX-License-Identifier: Apache-2.0
// The clip factor and the scalar it becomes part of.

#include "protrain/optim/scale.hpp"

#include "test/unit/optim/support.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <limits>

namespace scale_test {

namespace {
using protrain::optim::clip_factor;
using protrain::optim::gradient_scale;
using protrain_test::bits_of;
}  // namespace

TEST_CASE("the factor is exactly 1 within bounds and with clipping off") {
  CHECK(clip_factor(0.0F, 1.0F) == 1.0F);
  CHECK(clip_factor(1.0F, 1.0F) == 1.0F);
  CHECK(clip_factor(std::nextafter(1.0F, 0.0F), 1.0F) == 1.0F);
  CHECK(clip_factor(1e30F, 0.0F) == 1.0F);
  CHECK(clip_factor(1e30F, std::numeric_limits<float>::infinity()) == 1.0F);
  CHECK(clip_factor(std::numeric_limits<float>::quiet_NaN(), 0.0F) == 1.0F);
}

TEST_CASE("beyond the bound the factor is the fp32 quotient, and brings the norm to the bound") {
  CHECK(clip_factor(300.0F, 1.0F) == 1.0F / 300.0F);
  CHECK(clip_factor(std::nextafter(1.0F, 2.0F), 1.0F) < 1.0F);
  CHECK(clip_factor(8.0F, 2.0F) == 0.25F);
}

TEST_CASE("a norm that is not a number gives the canonical NaN") {
  CHECK(bits_of(clip_factor(protrain_test::from_bits(0xFFC00001U), 1.0F)) == 0x7FC00000U);
  CHECK(bits_of(gradient_scale(1.0F, protrain_test::from_bits(0x7FFFFFFFU), 1.0F)) == 0x7FC00000U);
}

TEST_CASE("the scale undoes the loss scale before it compares with the bound") {
  CHECK(gradient_scale(1.0F, 0.5F, 1.0F) == 1.0F);
  CHECK(gradient_scale(0x1p-16F, 0x1p15F, 1.0F) == 0x1p-16F);
  CHECK(gradient_scale(0x1p-16F, 0x1p18F, 1.0F) == 0x1p-18F);
  CHECK(gradient_scale(0x1p-16F, 0x1p18F, 0.0F) == 0x1p-16F);
}

TEST_CASE("a negative bound is refused") {
  struct refused {};
  auto const old =
      protrain::set_violation_handler([](protrain::violation const&) { throw refused{}; });
  CHECK_THROWS_AS(clip_factor(1.0F, -1.0F), refused);
  protrain::set_violation_handler(old);
}

}  // namespace scale_test
