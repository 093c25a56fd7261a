// SPDX-License-Identifier: Apache-2.0
// Layer normalisation: gradients, precision, bits, rebuilding from mean and rstd.

#include "examples/transformer/layer_norm.hpp"

#include "test/unit/transformer/harness.hpp"

namespace layer_norm_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct norm_case {
  length rows;
  length channels;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const n = rows * channels;
    T const* const x = mem.put<T>(in[0]);
    T const* const gamma = mem.put<T>(in[1]);
    T const* const beta = mem.put<T>(in[2]);
    T const* const dy = mem.put<T>(weights[0]);
    T* const y = mem.make<T>(n);
    T* const again = mem.make<T>(n);
    real* const mean = mem.make<real>(rows);
    real* const rstd = mem.make<real>(rows);
    T* const dx = mem.make<T>(n);
    T* const dgamma = mem.make<T>(channels);
    T* const dbeta = mem.make<T>(channels);
    layer_norm_forward(rows, channels, x, gamma, beta, real{1} / real{100000}, y, mean, rstd);
    layer_norm_apply(rows, channels, x, gamma, beta, mean, rstd, again);
    CHECK(std::memcmp(y, again, static_cast<std::size_t>(n) * sizeof(T)) == 0);
    T const* const none = nullptr;
    layer_norm_backward(rows, channels, x, gamma, mean, rstd, dy, none, dx, dgamma, dbeta);
    return {{values_of(y, n)},
            {values_of(dx, n), values_of(dgamma, channels), values_of(dbeta, channels)}};
  }

  arrays inputs() const {
    return {random_values(rows * channels, "x", 2, 0.5),
            random_values(channels, "gamma", 0.5, 1),
            random_values(channels, "beta")};
  }
  arrays weights() const { return {random_values(rows * channels, "dy")}; }
};

}  // namespace

TEST_CASE("layer norm: small and odd") {
  norm_case const c{7, 6};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("layer norm: several packs and a rest") {
  norm_case const c{5, 37};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("layer norm: the gradient beside is added, in place too, and dy may be an accumulator") {
  memory m;
  length const rows = 3;
  length const channels = 9;
  length const n = rows * channels;
  bfloat16 const* const x = m.put<bfloat16>(random_values(n, "x"));
  bfloat16 const* const gamma = m.put<bfloat16>(random_values(channels, "gamma"));
  float const* const mean = m.put<float>(random_values(rows, "mean"));
  float const* const rstd = m.put<float>(random_values(rows, "rstd", 0.5, 1));
  auto const dy_values = random_values(n, "dy");
  auto const beside_values = random_values(n, "beside", 8);
  bfloat16* const dgamma = m.make<bfloat16>(channels);
  bfloat16* const dbeta = m.make<bfloat16>(channels);
  bfloat16* const apart = m.make<bfloat16>(n);
  bfloat16* const in_place = m.put<bfloat16>(beside_values);
  layer_norm_backward(rows,
                      channels,
                      x,
                      gamma,
                      mean,
                      rstd,
                      m.put<bfloat16>(dy_values),
                      static_cast<bfloat16 const*>(m.put<bfloat16>(beside_values)),
                      apart,
                      dgamma,
                      dbeta);
  layer_norm_backward(rows,
                      channels,
                      x,
                      gamma,
                      mean,
                      rstd,
                      m.put<float>(dy_values),
                      static_cast<bfloat16 const*>(in_place),
                      in_place,
                      dgamma,
                      dbeta);
  CHECK(same_bits({values_of(apart, n)}, {values_of(in_place, n)}));
  bfloat16* const alone = m.make<bfloat16>(n);
  layer_norm_backward(rows,
                      channels,
                      x,
                      gamma,
                      mean,
                      rstd,
                      m.put<float>(dy_values),
                      static_cast<bfloat16 const*>(nullptr),
                      alone,
                      dgamma,
                      dbeta);
  auto sum = values_of(alone, n);
  for (std::size_t i = 0; i < sum.size(); ++i) {
    sum[i] += beside_values[i];
  }
  CHECK(relative_distance({values_of(apart, n)}, {sum}) < 0x1p-7);
}

}  // namespace layer_norm_test
