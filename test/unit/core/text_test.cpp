// SPDX-License-Identifier: Apache-2.0
// text: a string of constant evaluation.

#include "protrain/core/text.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace text_test {

namespace {

using namespace protrain;

constexpr bool names_add_up() {
  text t = "h.";
  t += std::uint64_t{0};
  t += ".w";
  t += ~std::uint64_t{0};
  return t.view() == "h.0.w18446744073709551615";
}
static_assert(names_add_up());
static_assert(text().empty() && !text("a").empty());
static_assert(text("a") < text("b") && text("a") < text("aa") && text("b") == text("b"));

TEST_CASE("copies are independent") {
  text const a = "layer";
  text b = a;
  b += ".1";
  CHECK(a.view() == "layer");
  CHECK(b.view() == "layer.1");
  CHECK(b > a);
}

}  // namespace

}  // namespace text_test
