// SPDX-License-Identifier: Apache-2.0
// SwiGLU: values, gradients, precision, bits, in place, far from zero.

#include "examples/transformer/swiglu.hpp"

#include "test/unit/transformer/harness.hpp"

namespace swiglu_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct swiglu_case {
  length n;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    T const* const gate = mem.put<T>(in[0]);
    T const* const up = mem.put<T>(in[1]);
    T* const y = mem.make<T>(n);
    T* const dgate = mem.make<T>(n);
    T* const dup = mem.put<T>(weights[0]);  // in place of dy
    T* const apart = mem.make<T>(n);
    swiglu_forward(n, gate, up, y);
    swiglu_backward(n, gate, up, mem.put<T>(weights[0]), dgate, apart);
    swiglu_backward(n, gate, up, static_cast<T const*>(dup), dgate, dup);
    CHECK(std::memcmp(dup, apart, static_cast<std::size_t>(n) * sizeof(T)) == 0);
    return {{values_of(y, n)}, {values_of(dgate, n), values_of(dup, n)}};
  }

  arrays inputs(double radius = 3) const {
    return {random_values(n, "gate", radius), random_values(n, "up", radius)};
  }
  arrays weights() const { return {random_values(n, "dy")}; }
};

}  // namespace

TEST_CASE("SwiGLU: values") {
  swiglu_case const c{29};
  auto const in = c.inputs();
  memory m;
  auto const out = c.operator()<double>(m, in, c.weights());
  std::vector<double> expected;
  for (std::size_t i = 0; i < in[0].size(); ++i) {
    expected.push_back(in[0][i] / (1 + std::exp(-in[0][i])) * in[1][i]);
  }
  CHECK(relative_distance(out.outputs, {expected}) < 1e-14);
}

TEST_CASE("SwiGLU: gradients, precision, bits") {
  swiglu_case const c{29};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("SwiGLU: gates far from zero are open or shut, never infinite") {
  swiglu_case const c{4};
  for (double const gate : {200.0, 1e30}) {
    memory m;
    std::vector<double> const up{2, 2, 2, 2};
    auto const out = c.operator()<float>(m, {{gate, -gate, gate, -gate}, up}, {{1, 1, 1, 1}});
    CHECK(out.outputs[0][0] == to_double(2 * static_cast<float>(gate)));
    CHECK(out.outputs[0][1] == 0);
    CHECK(out.gradients[0][0] == 2);
    CHECK(out.gradients[0][1] == 0);
    CHECK(out.gradients[1][1] == 0);
  }
}

}  // namespace swiglu_test
