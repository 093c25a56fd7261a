// SPDX-License-Identifier: Apache-2.0
// The head over the memory that its size table asks for: gradients, precision, bits, slices of the
// vocabulary, ignored targets.

#include "examples/transformer/gpt2_head.hpp"

#include "test/unit/transformer/harness.hpp"

namespace gpt2_head_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr std::int32_t few_targets[] = {3, 0, -1, 10, 4, -100, 7, 7, 1, 9};

struct head_case {
  gpt2_head_shape shape;
  std::int32_t const* targets;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const n = shape.rows() * shape.channels;
    auto const sizes = make_gpt2_head_sizes<T>(shape);
    auto const op = [&](std::string_view, length elements) { return mem.make<real>(elements); };
    auto const sum = [&](std::size_t i) { return mem.make<real>(sizes.saved[i].elements); };
    T const* const x = mem.put<T>(in[0]);
    gpt2_head_parameters<T const> const w{mem.put<T>(in[1]), mem.put<T>(in[2]), mem.put<T>(in[3])};
    gpt2_head_parameters<T> const g{mem.make<T>(shape.channels),
                                    mem.make<T>(shape.channels),
                                    mem.make<T>(shape.vocabulary * shape.channels)};
    gpt2_head_saved<T> const saved{mem.make<T>(sizes.saved[0].elements), sum(1), sum(2), sum(3)};
    real* const losses = mem.make<real>(shape.samples);
    T* const dx = mem.make<T>(n);
    gpt2_head_forward(shape, x, targets, w, saved, losses, op);
    gpt2_head_backward(shape,
                       x,
                       targets,
                       w,
                       saved,
                       static_cast<real>(weights[0][0]),
                       dx,
                       g,
                       mem.make<real>(sizes.temporary.elements),
                       op);
    return {{values_of(losses, shape.samples)},
            {values_of(dx, n),
             values_of(g.ln_f_weight, shape.channels),
             values_of(g.ln_f_bias, shape.channels),
             values_of(g.lm_head_weight, shape.vocabulary * shape.channels)}};
  }

  arrays inputs() const {
    return {random_values(shape.rows() * shape.channels, "x"),
            random_values(shape.channels, "ln_f weight", 0.5, 1),
            random_values(shape.channels, "ln_f bias", 0.5),
            random_values(shape.vocabulary * shape.channels, "lm_head")};
  }
  arrays weights() const {
    return {std::vector<double>(static_cast<std::size_t>(shape.samples), 0.375)};
  }
};

}  // namespace

TEST_CASE("GPT-2 head: gradients, precision, bits") {
  head_case const c{{.samples = 2, .tokens = 5, .channels = 6, .vocabulary = 11}, few_targets};
  examine(c, c.inputs(), c.weights(), 0x1p-6);
}

TEST_CASE("GPT-2 head: a vocabulary of several slices") {
  constexpr length vocabulary = 2 * vocabulary_loss_shape::slice + 11;
  std::int32_t const targets[] = {0,
                                  vocabulary_loss_shape::slice - 1,
                                  vocabulary_loss_shape::slice,
                                  vocabulary - 1,
                                  -1,
                                  2 * vocabulary_loss_shape::slice};
  head_case const c{{.samples = 2, .tokens = 3, .channels = 4, .vocabulary = vocabulary}, targets};
  check_gradients(c, c.inputs(), c.weights(), 41);
  check_close<float>(c, c.inputs(), c.weights(), 1e-5);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-6);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

TEST_CASE("GPT-2 head: equal logits cost the logarithm of the vocabulary") {
  head_case const c{{.samples = 2, .tokens = 5, .channels = 6, .vocabulary = 11}, few_targets};
  auto in = c.inputs();
  std::fill(in[3].begin(), in[3].end(), 0.25);
  memory m;
  auto const out = c.operator()<float>(m, in, c.weights());
  CHECK(out.outputs[0][0] == doctest::Approx(4 * std::log(11.0)));  // one of five is ignored
  CHECK(out.outputs[0][1] == doctest::Approx(4 * std::log(11.0)));
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(out.gradients[0][2 * 6 + i] == 0);
    CHECK(out.gradients[0][5 * 6 + i] == 0);
  }
}

}  // namespace gpt2_head_test
