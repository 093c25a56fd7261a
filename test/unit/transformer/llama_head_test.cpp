// SPDX-License-Identifier: Apache-2.0
// The head over the memory that its size table asks for: gradients, precision, bits, slices of the
// vocabulary, ignored targets.

#include "examples/transformer/llama_head.hpp"

#include "test/unit/transformer/harness.hpp"

namespace llama_head_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr std::int32_t few_targets[] = {3, 0, -1, 10, 4, -100, 7, 7, 1, 9};

struct head_case {
  llama_head_shape shape;
  std::int32_t const* targets;

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    using real = accumulator_t<T>;
    length const c = shape.loss.channels;
    length const n = shape.rows() * c;
    auto const sizes = make_llama_head_sizes<T>(shape);
    auto const op = [&](std::string_view, length elements) { return mem.make<real>(elements); };
    auto const sum = [&](std::size_t i) { return mem.make<real>(sizes.saved[i].elements); };
    T const* const x = mem.put<T>(in[0]);
    llama_head_parameters<T const> const w{mem.put<T>(in[1]), mem.put<T>(in[2])};
    llama_head_parameters<T> const g{mem.make<T>(c), mem.make<T>(shape.loss.vocabulary * c)};
    llama_head_saved<T> const saved{mem.make<T>(sizes.saved[0].elements), sum(1), sum(2)};
    real* const losses = mem.make<real>(shape.loss.samples);
    T* const dx = mem.make<T>(n);
    llama_head_forward(shape, x, targets, w, saved, losses, op);
    llama_head_backward(shape,
                        x,
                        targets,
                        w,
                        saved,
                        static_cast<real>(weights[0][0]),
                        dx,
                        g,
                        mem.make<real>(sizes.temporary.elements),
                        op);
    return {
        {values_of(losses, shape.loss.samples)},
        {values_of(dx, n), values_of(g.norm, c), values_of(g.lm_head, shape.loss.vocabulary * c)}};
  }

  arrays inputs() const {
    length const c = shape.loss.channels;
    return {random_values(shape.rows() * c, "x"),
            random_values(c, "norm", 0.5, 1),
            random_values(shape.loss.vocabulary * c, "lm_head")};
  }
  arrays weights() const {
    return {std::vector<double>(static_cast<std::size_t>(shape.loss.samples), 0.375)};
  }
};

}  // namespace

TEST_CASE("LLaMA head: gradients, precision, bits") {
  head_case const c{{.loss = {2, 5, 6, 11}}, few_targets};
  examine(c, c.inputs(), c.weights(), 0x1p-6);
}

TEST_CASE("LLaMA head: a vocabulary of several slices") {
  constexpr length slice = vocabulary_loss_shape::slice;
  constexpr length vocabulary = 2 * slice + 11;
  std::int32_t const targets[] = {0, slice - 1, slice, vocabulary - 1, -1, 2 * slice};
  head_case const c{{.loss = {2, 3, 4, vocabulary}}, targets};
  check_gradients(c, c.inputs(), c.weights(), 41);
  check_close<float>(c, c.inputs(), c.weights(), 1e-5);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-6);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

TEST_CASE("LLaMA head: equal logits cost the logarithm of the vocabulary") {
  head_case const c{{.loss = {2, 5, 6, 11}}, few_targets};
  auto in = c.inputs();
  std::fill(in[2].begin(), in[2].end(), 0.25);
  memory m;
  auto const out = c.operator()<float>(m, in, c.weights());
  CHECK(out.outputs[0][0] == doctest::Approx(4 * std::log(11.0)));  // one of five is ignored
  CHECK(out.outputs[0][1] == doctest::Approx(4 * std::log(11.0)));
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(out.gradients[0][2 * 6 + i] == 0);
    CHECK(out.gradients[0][5 * 6 + i] == 0);
  }
}

}  // namespace llama_head_test
