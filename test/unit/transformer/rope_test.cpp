// SPDX-License-Identifier: Apache-2.0
// Rotary positions: values against complex numbers in fp64, gradients, precision, bits.

#include "examples/transformer/rope.hpp"

#include "test/unit/transformer/harness.hpp"

#include <complex>

namespace rope_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr double theta = 500;

/// Forward of qkv; backward of its weights.
struct rope_case {
  attention_shape shape;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const n = shape.rows() * shape.packed();
    T* const x = mem.put<T>(in[0]);
    T* const dx = mem.put<T>(weights[0]);
    rope_forward(shape, theta, x, mem.make<real>(rope_workspace(shape)));
    rope_backward(shape, theta, dx, mem.make<real>(rope_workspace(shape)));
    return {{values_of(x, n)}, {values_of(dx, n)}};
  }

  arrays inputs() const { return {random_values(shape.rows() * shape.packed(), "qkv")}; }
  arrays weights() const { return {random_values(shape.rows() * shape.packed(), "dqkv")}; }

  std::vector<double> expected() const {
    auto out = inputs()[0];
    length const half = shape.head_channels() / 2;
    for (length row = 0; row < shape.rows(); ++row) {
      for (length h = 0; h < shape.heads + shape.key_heads; ++h) {
        for (length i = 0; i < half; ++i) {
          auto const at = static_cast<std::size_t>(row * shape.packed() + h * 2 * half + i);
          auto const other = at + static_cast<std::size_t>(half);
          double const angle = static_cast<double>(row % shape.tokens) /
                               std::pow(theta, static_cast<double>(i) / static_cast<double>(half));
          auto const turned = std::complex(out[at], out[other]) * std::polar(1.0, angle);
          out[at] = turned.real();
          out[other] = turned.imag();
        }
      }
    }
    return out;
  }
};

}  // namespace

TEST_CASE("RoPE: values; values' channels and the first token stay") {
  for (rope_case const& c : {rope_case{{2, 5, 24, 4, 2}}, {{1, 9, 20, 2}}, {{3, 4, 2, 1}}}) {
    memory m;
    auto const out = c.operator()<double>(m, c.inputs(), c.weights());
    CHECK(relative_distance(out.outputs, {c.expected()}) < 1e-13);
    auto const in = c.inputs()[0];
    auto const packed = static_cast<std::size_t>(c.shape.packed());
    auto const turned =
        static_cast<std::size_t>((c.shape.heads + c.shape.key_heads) * c.shape.head_channels());
    for (std::size_t i = 0; i < in.size(); ++i) {
      bool const first = i / packed % static_cast<std::size_t>(c.shape.tokens) == 0;
      if (first || i % packed >= turned) {
        CHECK(out.outputs[0][i] == in[i]);
      }
    }
  }
}

TEST_CASE("RoPE: gradients, precision, bits") {
  for (rope_case const& c : {rope_case{{2, 5, 24, 4, 2}}, {{2, 3, 20, 2}}}) {
    examine(c, c.inputs(), c.weights(), 0x1p-7);
  }
}

TEST_CASE("RoPE: back undoes forward") {
  rope_case const c{{2, 7, 24, 4, 1}};
  memory m;
  auto const in = c.inputs();
  double* const x = m.put<double>(in[0]);
  rope_forward(c.shape, theta, x, m.make<double>(rope_workspace(c.shape)));
  CHECK(relative_distance({values_of(x, c.shape.rows() * c.shape.packed())}, in) > 0.1);
  rope_backward(c.shape, theta, x, m.make<double>(rope_workspace(c.shape)));
  CHECK(relative_distance({values_of(x, c.shape.rows() * c.shape.packed())}, in) < 1e-14);
}

TEST_CASE("RoPE: far positions keep fp32's precision") {
  rope_case const c{{1, 5000, 8, 2, 1}};
  memory m;
  auto const out = c.operator()<float>(m, c.inputs(), c.weights());
  CHECK(relative_distance(out.outputs, {c.expected()}) < 1e-6);
}

}  // namespace rope_test
