// SPDX-License-Identifier: Apache-2.0
// Dropout: gradients, rates, and masks that belong to the sample, whatever the micro-batch.

#include "examples/transformer/dropout.hpp"

#include "test/unit/transformer/harness.hpp"

namespace dropout_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct residual_case {
  length samples;
  length tokens;
  length channels;
  dropout_key key;

  length size() const { return samples * tokens * channels; }

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    T const* const x = mem.put<T>(in[0]);
    T* const branch = mem.put<T>(in[1]);
    T const* const dy = mem.put<T>(weights[0]);
    T* const dbranch = mem.make<T>(size());
    dropout_backward(samples, tokens, channels, dy, key, dbranch);
    residual_forward(samples, tokens, channels, x, branch, key, branch);
    return {{values_of(branch, size())}, {values_of(dy, size()), values_of(dbranch, size())}};
  }

  arrays inputs() const { return {random_values(size(), "x"), random_values(size(), "branch")}; }
  arrays weights() const { return {random_values(size(), "dy")}; }
};

constexpr random_key place{.seed = 3, .step = 5, .sample = 7, .block = 2, .op = 1};

}  // namespace

TEST_CASE("residual and dropout: gradients, precision, bits") {
  residual_case const c{2, 5, 6, {place, 0.3}};
  examine(c, c.inputs(), c.weights(), 0x1p-7);
}

TEST_CASE("probability 0 leaves the branch as it is") {
  residual_case const c{2, 3, 7, {place, 0}};
  memory m;
  auto const in = c.inputs();
  auto const out = c.operator()<float>(m, in, c.weights());
  for (std::size_t i = 0; i < in[0].size(); ++i) {
    CHECK(static_cast<float>(out.outputs[0][i]) ==
          static_cast<float>(in[0][i]) + static_cast<float>(in[1][i]));
  }
  CHECK(out.gradients[1] == c.weights()[0]);
}

TEST_CASE("every kernel draws what keep() says, at the expected rate") {
  dropout_key const key{place, 0.1};
  length const samples = 3;
  length const tokens = 50;
  length const channels = 37;
  length kept = 0;
  auto const scale = static_cast<float>(1 / 0.9);
  for_dropped_rows<float>(
      samples, tokens, channels, key, [&](length row, length i, length count, pack<float> factor) {
        for (length l = 0; l < count; ++l) {
          auto const element =
              dropout_element(row % tokens, channels) + static_cast<std::uint64_t>(i + l);
          bool const keep = key.keep(row / tokens, element);
          float const lane = factor.v[l];
          REQUIRE(lane == (keep ? scale : 0.0F));
          kept += keep ? 1 : 0;
        }
      });
  double const n = static_cast<double>(samples * tokens * channels);
  CHECK(std::abs(static_cast<double>(kept) / n - 0.9) < 4 * std::sqrt(0.09 / n));
}

TEST_CASE("a sample's mask doesn't depend on its micro-batch") {
  residual_case const both{2, 5, 6, {place, 0.5}};
  random_key second = place;
  second.sample += 1;
  residual_case const alone{1, 5, 6, {second, 0.5}};
  auto const in = both.inputs();
  auto const weights = both.weights();
  auto const tail = [](std::vector<double> const& v) {
    return std::vector<double>(v.begin() + 30, v.end());
  };
  memory m;
  auto const whole = both.operator()<float>(m, in, weights);
  auto const half = alone.operator()<float>(m, {tail(in[0]), tail(in[1])}, {tail(weights[0])});
  CHECK(same_bits(half.outputs, {tail(whole.outputs[0])}));
  CHECK(same_bits({half.gradients[1]}, {tail(whole.gradients[1])}));
}

TEST_CASE("operators, blocks, steps and seeds have their own masks") {
  auto const mask = [](random_key const& at) {
    std::uint64_t bits = 0;
    for (std::uint64_t e = 0; e < 64; ++e) {
      bits = bits * 2 + (dropout_key{at, 0.5}.keep(0, e) ? 1U : 0U);
    }
    return bits;
  };
  random_key other[5] = {place, place, place, place, place};
  other[0].seed += 1;
  other[1].step += 1;
  other[2].sample += 1;
  other[3].block += 1;
  other[4].op += 1;
  for (random_key const& at : other) {
    CHECK(mask(at) != mask(place));
  }
  CHECK(mask(place) == mask(place));
}

}  // namespace dropout_test
