// SPDX-License-Identifier: Apache-2.0
// Cross entropy: gradients, chunks of the vocabulary, ignored targets, extreme logits.

#include "examples/transformer/cross_entropy.hpp"

#include "test/unit/transformer/harness.hpp"

namespace cross_entropy_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr length samples = 2;
constexpr length tokens = 5;
constexpr length rows = samples * tokens;
constexpr length vocabulary = 11;
constexpr std::int32_t targets[] = {3, 0, -1, 10, 4, -100, 7, 7, 1, 9};

/// Logits in chunks of `chunk` entries; weights[0] is the scale, for each sample.
struct loss_case {
  length chunk = vocabulary;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    cross_entropy_rows<real> const state{
        mem.make<real>(rows), mem.make<real>(rows), mem.make<real>(rows)};
    real* const log_sums = mem.make<real>(rows);
    real* const losses = mem.make<real>(samples);
    cross_entropy_begin(rows, state);
    for (length first = 0; first < vocabulary; first += chunk) {
      length const count = std::min(chunk, vocabulary - first);
      cross_entropy_add(rows, first, count, part<T>(mem, in[0], first, count), targets, state);
    }
    cross_entropy_finish(samples, tokens, targets, state, log_sums, losses);
    std::vector<double> gradient(in[0].size(), -7);
    for (length first = 0; first < vocabulary; first += chunk) {
      length const count = std::min(chunk, vocabulary - first);
      T* const here = part<T>(mem, in[0], first, count);
      cross_entropy_backward(
          rows, first, count, here, targets, log_sums, static_cast<real>(weights[0][0]), here);
      for (length i = 0; i < rows * count; ++i) {
        gradient[static_cast<std::size_t>(i / count * vocabulary + first + i % count)] =
            to_double(here[i]);
      }
    }
    return {{values_of(losses, samples)}, {gradient}};
  }

 private:
  template <class T>
  static T* part(memory& mem, std::vector<double> const& logits, length first, length count) {
    std::vector<double> out;
    for (length i = 0; i < rows * count; ++i) {
      out.push_back(logits[static_cast<std::size_t>(i / count * vocabulary + first + i % count)]);
    }
    return mem.put<T>(out);
  }
};

arrays const weights{{0.375, 0.375}};

}  // namespace

TEST_CASE("cross entropy: gradients, precision, bits") {
  arrays const in{random_values(rows * vocabulary, "logits", 3)};
  examine(loss_case{}, in, weights, 0x1p-7);
  examine(loss_case{4}, in, weights, 0x1p-7);
}

TEST_CASE("cross entropy: chunks change the result by rounding only") {
  arrays const in{random_values(rows * vocabulary, "logits", 3)};
  memory m;
  auto const whole = loss_case{}.operator()<double>(m, in, weights);
  for (length const chunk : {1, 3, 5, 10}) {
    auto const parts = loss_case{chunk}.operator()<double>(m, in, weights);
    CHECK(relative_distance(parts.outputs, whole.outputs) < 1e-13);
    CHECK(relative_distance(parts.gradients, whole.gradients) < 1e-13);
  }
}

TEST_CASE("cross entropy: ignored targets have no loss and a zero gradient") {
  arrays in{random_values(rows * vocabulary, "logits", 3)};
  memory m;
  auto const before = loss_case{}.operator()<float>(m, in, weights);
  for (std::size_t i = 0; i < 11; ++i) {
    CHECK(before.gradients[0][2 * 11 + i] == 0);
    CHECK(before.gradients[0][5 * 11 + i] == 0);
    in[0][2 * 11 + i] = 1000;
    in[0][5 * 11 + i] = -1000;
  }
  auto const after = loss_case{}.operator()<float>(m, in, weights);
  CHECK(same_bits(after.outputs, before.outputs));
  CHECK(same_bits(after.gradients, before.gradients));
  CHECK(count_targets(rows, targets) == 8);
}

TEST_CASE_TEMPLATE("cross entropy: extreme logits stay finite", T, float, bfloat16) {
  for (length const chunk : {length{3}, vocabulary}) {
    arrays in{random_values(rows * vocabulary, "logits", 3.0e38)};
    memory m;
    auto const out = loss_case{chunk}.template operator()<T>(m, in, weights);
    for (double const g : out.gradients[0]) {
      CHECK(std::abs(g) <= 0.375);
    }
    in = {random_values(rows * vocabulary, "logits", 1.0e4)};
    auto const milder = loss_case{chunk}.template operator()<T>(m, in, weights);
    CHECK(std::isfinite(milder.outputs[0][0]));
    CHECK(milder.outputs[0][0] > 0);
  }
}

}  // namespace cross_entropy_test
