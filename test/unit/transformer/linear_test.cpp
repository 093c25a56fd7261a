// SPDX-License-Identifier: Apache-2.0
// The linear layer: gradients, precision, bits, bounds.

#include "examples/transformer/linear.hpp"

#include "test/unit/transformer/harness.hpp"

namespace linear_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct linear_case {
  length m;
  length n;
  length k;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    T const* const x = mem.put<T>(in[0]);
    T const* const w = mem.put<T>(in[1]);
    T const* const bias = mem.put<T>(in[2]);
    T const* const dy = mem.put<T>(weights[0]);
    T* const y = mem.make<T>(m * n);
    T* const dx = mem.make<T>(m * k);
    T* const dw = mem.make<T>(n * k);
    T* const dbias = mem.make<T>(n);
    linear_forward(m, n, k, x, w, bias, y, mem.make<real>(linear_forward_workspace<T>(m, n, k)));
    linear_backward(
        m, n, k, x, w, dy, dx, dw, dbias, mem.make<real>(linear_backward_workspace<T>(m, n, k)));
    return {{values_of(y, m * n)},
            {values_of(dx, m * k), values_of(dw, n * k), values_of(dbias, n)}};
  }

  arrays inputs() const {
    return {random_values(m * k, "x"), random_values(n * k, "w"), random_values(n, "bias")};
  }
  arrays weights() const { return {random_values(m * n, "dy")}; }
};

}  // namespace

TEST_CASE("linear: small and odd") {
  linear_case const c{10, 7, 6};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("linear: larger than a tile") {
  linear_case const c{150, 201, 260};
  check_close<float>(c, c.inputs(), c.weights(), 1e-5);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-7);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

namespace {

/// Two layers of one x, their outputs side by side with a gap between rows.
struct parts_case {
  length m;
  length n;
  length k;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const wide = 3 * n;
    T const* const x = mem.put<T>(in[0]);
    T const* const none = nullptr;
    T* const y = mem.put<T>(std::vector<double>(static_cast<std::size_t>(m * wide), 0.0));
    T const* const dy = mem.put<T>(weights[0]);
    real* const dx = mem.make<real>(m * k);
    outcome out{{}, {{}}};
    for (length part = 0; part < 2; ++part) {
      T const* const w = mem.put<T>(in[static_cast<std::size_t>(1 + part)]);
      T* const dw = mem.make<T>(n * k);
      linear_forward(m,
                     n,
                     k,
                     x,
                     w,
                     none,
                     matrix{y + part * n, wide},
                     mem.make<real>(linear_forward_workspace<T>(m, n, k)));
      linear_part_backward(m,
                           n,
                           k,
                           x,
                           w,
                           matrix{dy + part * n, wide},
                           part == 0 ? target::overwrite : target::add,
                           dx,
                           dw,
                           mem.make<real>(linear_backward_workspace<T>(m, n, k)));
      out.gradients.push_back(values_of(dw, n * k));
    }
    out.gradients[0] = values_of(dx, m * k);
    out.outputs = {values_of(y, m * wide)};
    return out;
  }

  arrays inputs() const {
    return {random_values(m * k, "x"), random_values(n * k, "w"), random_values(n * k, "w too")};
  }
  arrays weights() const { return {random_values(m * 3 * n, "dy")}; }
};

}  // namespace

TEST_CASE("linear: layers that share x") {
  parts_case const c{5, 7, 6};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
  parts_case const large{140, 201, 260};
  check_close<float>(large, large.inputs(), large.weights(), 1e-5);
  check_close<bfloat16>(large, large.inputs(), large.weights(), 0x1p-7);
}

TEST_CASE("linear: gradients that nobody asks for are not written") {
  memory m;
  float const* const x = m.put<float>(random_values(6, "x"));
  float const* const w = m.put<float>(random_values(6, "w"));
  float const* const dy = m.put<float>(random_values(4, "dy"));
  float* const dbias = m.make<float>(2);
  float* const none = nullptr;
  linear_backward(2,
                  2,
                  3,
                  x,
                  w,
                  dy,
                  none,
                  none,
                  dbias,
                  m.make<float>(linear_backward_workspace<float>(2, 2, 3)));
  CHECK(dbias[0] == dy[0] + dy[2]);
  CHECK(dbias[1] == dy[1] + dy[3]);
}

}  // namespace linear_test
