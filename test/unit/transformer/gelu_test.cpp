// SPDX-License-Identifier: Apache-2.0
// GELU against its tanh form, and its gradient.

#include "examples/transformer/gelu.hpp"

#include "test/unit/transformer/harness.hpp"

namespace gelu_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct gelu_case {
  length n;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    T const* const x = mem.put<T>(in[0]);
    T* const gradient = mem.put<T>(weights[0]);
    T* const y = mem.make<T>(n);
    gelu_forward(n, x, y);
    gelu_backward(n, x, gradient, gradient);
    return {{values_of(y, n)}, {values_of(gradient, n)}};
  }
};

}  // namespace

TEST_CASE("gelu: gradients, precision, bits") {
  gelu_case const c{103};
  examine(c, {random_values(103, "x", 5)}, {random_values(103, "dy")}, 0x1p-7);
}

TEST_CASE("gelu equals the tanh form") {
  for (int i = -800; i <= 800; ++i) {
    double const x = i * 0.01;
    double const u = 0.79788456080286535588 * (x + 0.044715 * x * x * x);
    double const expected = 0.5 * x * (1 + std::tanh(u));
    double wide = 0;
    float narrow = 0;
    float const y = static_cast<float>(x);
    gelu_forward(1, &x, &wide);
    gelu_forward(1, &y, &narrow);
    CHECK(std::abs(wide - expected) < 1e-14);
    CHECK(std::abs(static_cast<double>(narrow) - expected) < 1e-6);
  }
}

TEST_CASE("gelu: far out it is the identity or zero, with finite slopes") {
  for (float const x : {-3.0e38F, -1.0e20F, -40.0F, 40.0F, 1.0e20F, 3.0e38F}) {
    float y = 0;
    float const one = 1;
    float dx = 0;
    gelu_forward(1, &x, &y);
    gelu_backward(1, &x, &one, &dx);
    CHECK(y == (x > 0 ? x : 0.0F));
    CHECK(dx == (x > 0 ? 1.0F : 0.0F));
  }
}

}  // namespace gelu_test
