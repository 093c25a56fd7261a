// SPDX-License-Identifier: Apache-2.0
// Root-mean-square norm: values against a plain loop in fp64, gradients, precision, bits.

#include "examples/transformer/rms_norm.hpp"

#include "test/unit/transformer/harness.hpp"

namespace rms_norm_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr double epsilon = 1e-5;

struct norm_case {
  length rows;
  length channels;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const n = rows * channels;
    T const* const x = mem.put<T>(in[0]);
    T const* const gamma = mem.put<T>(in[1]);
    T const* const dy = mem.put<T>(weights[0]);
    T* const y = mem.make<T>(n);
    real* const rstd = mem.make<real>(rows);
    T* const dx = mem.make<T>(n);
    T* const dgamma = mem.make<T>(channels);
    rms_norm_forward(rows, channels, x, gamma, static_cast<real>(epsilon), y, rstd);
    T const* const none = nullptr;
    rms_norm_backward(rows, channels, x, gamma, rstd, dy, none, dx, dgamma);
    return {{values_of(y, n)}, {values_of(dx, n), values_of(dgamma, channels)}};
  }

  arrays inputs() const {
    return {random_values(rows * channels, "x", 2, 0.5), random_values(channels, "gamma", 0.5, 1)};
  }
  arrays weights() const { return {random_values(rows * channels, "dy")}; }

  std::vector<double> expected() const {
    auto const in = inputs();
    std::vector<double> out;
    auto const width = static_cast<std::size_t>(channels);
    for (std::size_t first = 0; first < in[0].size(); first += width) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        squares += in[0][first + i] * in[0][first + i];
      }
      for (std::size_t i = 0; i < width; ++i) {
        out.push_back(in[0][first + i] * in[1][i] /
                      std::sqrt(squares / static_cast<double>(channels) + epsilon));
      }
    }
    return out;
  }
};

}  // namespace

TEST_CASE("RMS norm: values") {
  for (norm_case const& c : {norm_case{7, 6}, {3, 37}, {2, 1}}) {
    memory m;
    auto const out = c.operator()<double>(m, c.inputs(), c.weights());
    CHECK(relative_distance(out.outputs, {c.expected()}) < 1e-14);
  }
}

TEST_CASE("RMS norm: small and odd") {
  norm_case const c{7, 6};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("RMS norm: several packs and a rest") {
  norm_case const c{5, 37};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("RMS norm: rows of zeros stay finite") {
  norm_case const c{2, 5};
  auto in = c.inputs();
  std::fill(in[0].begin(), in[0].end(), 0.0);
  memory m;
  auto const out = c.operator()<float>(m, in, c.weights());
  CHECK(out.outputs[0][0] == 0);
  CHECK(std::isfinite(out.gradients[0][0]));
  CHECK(out.gradients[1][0] == 0);
}

TEST_CASE("RMS norm: the gradient beside is added, in place too, and dy may be an accumulator") {
  memory m;
  length const rows = 3;
  length const channels = 9;
  length const n = rows * channels;
  bfloat16 const* const x = m.put<bfloat16>(random_values(n, "x"));
  bfloat16 const* const gamma = m.put<bfloat16>(random_values(channels, "gamma"));
  float const* const rstd = m.put<float>(random_values(rows, "rstd", 0.5, 1));
  auto const dy = random_values(n, "dy");
  auto const beside = random_values(n, "beside", 8);
  bfloat16* const dgamma = m.make<bfloat16>(channels);
  bfloat16* const apart = m.make<bfloat16>(n);
  bfloat16* const in_place = m.put<bfloat16>(beside);
  bfloat16* const alone = m.make<bfloat16>(n);
  bfloat16 const* const none = nullptr;
  bfloat16 const* const side = m.put<bfloat16>(beside);
  rms_norm_backward(rows, channels, x, gamma, rstd, m.put<bfloat16>(dy), side, apart, dgamma);
  rms_norm_backward(rows,
                    channels,
                    x,
                    gamma,
                    rstd,
                    m.put<float>(dy),
                    static_cast<bfloat16 const*>(in_place),
                    in_place,
                    dgamma);
  CHECK(same_bits({values_of(apart, n)}, {values_of(in_place, n)}));
  rms_norm_backward(rows, channels, x, gamma, rstd, m.put<float>(dy), none, alone, dgamma);
  auto sum = values_of(alone, n);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += beside[i];
  }
  CHECK(relative_distance({values_of(apart, n)}, {sum}) < 0x1p-7);
}

}  // namespace rms_norm_test
