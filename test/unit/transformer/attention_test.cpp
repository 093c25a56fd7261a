// SPDX-License-Identifier: Apache-2.0
// Causal attention: values against plain loops in fp64, gradients with and without dropout and with
// shared key-value heads, precision, bits, causality.

#include "examples/transformer/attention.hpp"

#include "test/unit/transformer/harness.hpp"

namespace attention_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct attention_case {
  attention_shape shape;
  dropout_key key{};

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const n = shape.rows() * shape.channels;
    T const* const qkv = mem.put<T>(in[0]);
    T const* const dout = mem.put<T>(weights[0]);
    T* const probabilities = mem.make<T>(shape.probabilities());
    T* const out = mem.make<T>(n);
    T* const dqkv = mem.make<T>(shape.rows() * shape.packed());
    attention_forward(
        shape, qkv, key, probabilities, out, mem.make<real>(attention_forward_workspace<T>(shape)));
    attention_backward(shape,
                       qkv,
                       probabilities,
                       dout,
                       key,
                       dqkv,
                       mem.make<real>(attention_backward_workspace<T>(shape)));
    return {{values_of(out, n)}, {values_of(dqkv, shape.rows() * shape.packed())}};
  }

  arrays inputs(double radius = 1) const {
    return {random_values(shape.rows() * shape.packed(), "qkv", radius)};
  }
  arrays weights() const { return {random_values(shape.rows() * shape.channels, "dout")}; }

  double at(arrays const& in, length row, length channel) const {
    return in[0][static_cast<std::size_t>(row * shape.packed() + channel)];
  }

  /// Without dropout, from the definition.
  std::vector<double> expected(arrays const& in) const {
    length const width = shape.head_channels();
    std::vector<double> out;
    for (length row = 0; row < shape.rows(); ++row) {
      for (length c = 0; c < shape.channels; ++c) {
        length const query = c / width * width;
        length const keys = shape.channels + c / width / (shape.heads / shape.key_heads) * width;
        length const values = keys + shape.key_heads * width + c % width;
        double sum = 0;
        double mean = 0;
        for (length r = row - row % shape.tokens; r <= row; ++r) {
          double score = 0;
          for (length i = 0; i < width; ++i) {
            score += at(in, row, query + i) * at(in, r, keys + i);
          }
          double const weight = std::exp(score / std::sqrt(static_cast<double>(width)));
          sum += weight;
          mean += weight * at(in, r, values);
        }
        out.push_back(mean / sum);
      }
    }
    return out;
  }
};

constexpr random_key place{.seed = 3, .step = 5, .sample = 7, .block = 2, .op = 0};

}  // namespace

TEST_CASE("attention: gradients, precision, bits") {
  attention_case const c{{2, 5, 6, 3}};
  examine(c, c.inputs(2), c.weights(), 0x1p-6);
}

TEST_CASE("attention with dropout: gradients, precision, bits") {
  attention_case const c{{2, 5, 6, 3}, {place, 0.3}};
  examine(c, c.inputs(2), c.weights(), 0x1p-6);
}

TEST_CASE("attention: values") {
  for (attention_case const& c :
       {attention_case{{2, 5, 6, 3}}, {{2, 5, 24, 4, 2}}, {{1, 7, 30, 6, 2}}, {{2, 3, 20, 5, 1}}}) {
    memory m;
    auto const in = c.inputs(2);
    auto const out = c.operator()<double>(m, in, c.weights());
    CHECK(relative_distance(out.outputs, {c.expected(in)}) < 1e-14);
  }
}

TEST_CASE("attention with shared key-value heads: gradients, precision, bits") {
  for (attention_case const& c : {attention_case{{2, 5, 24, 4, 2}},
                                  {{1, 4, 30, 6, 2}, {place, 0.3}},
                                  {{2, 3, 20, 5, 1}, {place, 0.3}}}) {
    examine(c, c.inputs(2), c.weights(), 0x1p-6);
  }
}

TEST_CASE("attention: what query heads add to a shared head is rounded once") {
  // A single token: the gradient of its value is the sum of dout over the heads, 1 + 3 x 2^-9.
  attention_case const c{{1, 1, 4, 4, 1}};
  memory m;
  auto const out = c.operator()<bfloat16>(m, c.inputs(), {{1, 0x1p-9, 0x1p-9, 0x1p-9}});
  CHECK(out.gradients[0][5] == to_double(from_double<bfloat16>(1 + 3 * 0x1p-9)));
}

TEST_CASE("attention: longer than a tile") {
  attention_case const shared{{1, 140, 12, 4, 2}, {place, 0.1}};
  check_close<float>(shared, shared.inputs(), shared.weights(), 1e-5);
  check_close<bfloat16>(shared, shared.inputs(), shared.weights(), 0x1p-6);
  attention_case const c{{1, 140, 10, 2}, {place, 0.1}};
  check_close<float>(c, c.inputs(), c.weights(), 1e-5);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-6);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

TEST_CASE("attention: rows of probabilities sum to one and never look ahead") {
  attention_shape const s{2, 7, 8, 2};
  memory m;
  float const* const qkv = m.put<float>(random_values(3 * s.rows() * s.channels, "qkv", 30));
  float* const p = m.make<float>(s.probabilities());
  float* const out = m.make<float>(s.rows() * s.channels);
  attention_forward(s, qkv, {}, p, out, m.make<float>(attention_forward_workspace<float>(s)));
  for (length row = 0; row < s.samples * s.heads * s.tokens; ++row) {
    float sum = 0;
    for (length j = 0; j < s.tokens; ++j) {
      float const value = p[row * s.tokens + j];
      sum += value;
      CHECK((j <= row % s.tokens ? value >= 0 : value == 0));
    }
    CHECK(sum == doctest::Approx(1.0).epsilon(1e-6));
  }
  CHECK(p[0] == 1.0F);
  CHECK(std::memcmp(out, qkv + 2 * s.channels, 8 * sizeof(float)) ==
        0);  // the first token sees itself
}

}  // namespace attention_test
