// SPDX-License-Identifier: Apache-2.0
// A whole GPT-2 block over the memory that its own size tables ask for: gradients of every
// parameter, precision, bits, and rebuilding at every save level.

#include "examples/transformer/gpt2_block.hpp"

#include "test/unit/transformer/harness.hpp"

namespace gpt2_block_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

struct block_case {
  gpt2_block_shape shape;
  gpt2_block_dropout dropout{};
  gpt2_block_level const* rebuild = nullptr;  // what backward finds; null: all that forward saved

  static constexpr std::size_t parameters = 12;

  std::array<length, parameters> parameter_sizes() const {
    length const c = shape.channels();
    length const f = shape.inner;
    return {c, c, 3 * c * c, 3 * c, c * c, c, c, c, f * c, f, c * f, c};
  }

  template <class P>
  static gpt2_block_parameters<P> name(std::array<P*, parameters> const& p) {
    return {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8], p[9], p[10], p[11]};
  }

  template <class T>
  gpt2_block_saved<T> make_saved(memory& mem, gpt2_block_sizes const& sizes) const {
    using real = accumulator_t<T>;
    auto const& s = sizes.saved;
    for (std::size_t i : {1U, 2U, 8U, 9U}) {
      CHECK(s[i].kind == element_kind::accumulator);
    }
    auto const value = [&](std::size_t i) { return mem.make<T>(s[i].elements); };
    auto const sum = [&](std::size_t i) { return mem.make<real>(s[i].elements); };
    return {value(0),
            sum(1),
            sum(2),
            value(3),
            value(4),
            value(5),
            value(6),
            value(7),
            sum(8),
            sum(9),
            value(10),
            value(11)};
  }

  /// Fresh memory for what `level` dropped, then the rebuild.
  template <class T, class Op>
  gpt2_block_saved<T> rebuilt(memory& mem,
                              gpt2_block_sizes const& sizes,
                              T const* x,
                              gpt2_block_parameters<T const> const& weights,
                              gpt2_block_saved<T> const& full,
                              Op const& op) const {
    auto saved = make_saved<T>(mem, sizes);
    if (*rebuild != gpt2_block_level::input) {
      saved.attention = full.attention;
      saved.residual = full.residual;
      saved.ln_1_mean = full.ln_1_mean;
      saved.ln_1_rstd = full.ln_1_rstd;
      saved.ln_2_mean = full.ln_2_mean;
      saved.ln_2_rstd = full.ln_2_rstd;
    }
    if (*rebuild == gpt2_block_level::cheap) {
      saved.qkv = full.qkv;
      saved.probabilities = full.probabilities;
      saved.fc = full.fc;
    }
    gpt2_block_rebuild(shape, x, weights, dropout, saved, *rebuild, op);
    return saved;
  }

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& loss_weights) const {
    using real = accumulator_t<T>;
    length const n = shape.rows() * shape.channels();
    auto const sizes = make_gpt2_block_sizes<T>(shape, dropout.mlp_residual.on());
    auto const op = [&](std::string_view, length elements) { return mem.make<real>(elements); };
    T const* const x = mem.put<T>(in[0]);
    T const* const dy = mem.put<T>(loss_weights[0]);
    T* const y = mem.make<T>(n);
    T* const dx = mem.make<T>(n);
    std::array<T const*, parameters> values{};
    std::array<T*, parameters> gradients{};
    for (std::size_t i = 0; i < parameters; ++i) {
      values[i] = mem.put<T>(in[i + 1]);
      gradients[i] = mem.make<T>(parameter_sizes()[i]);
    }
    auto const weights = name<T const>(values);
    auto saved = make_saved<T>(mem, sizes);
    gpt2_block_forward(shape, x, weights, dropout, saved, y, op);
    if (rebuild != nullptr) {
      saved = rebuilt<T>(mem, sizes, x, weights, saved, op);
    }
    auto const room = [&](std::size_t i) { return mem.make<T>(sizes.temporary[i].elements); };
    gpt2_block_temporary<T> const temporary{room(0), room(1), room(2), room(3)};
    gpt2_block_backward(
        shape, x, weights, dropout, saved, dy, dx, name<T>(gradients), temporary, op);
    outcome out{{values_of(y, n)}, {values_of(dx, n)}};
    for (std::size_t i = 0; i < parameters; ++i) {
      out.gradients.push_back(values_of(gradients[i], parameter_sizes()[i]));
    }
    return out;
  }

  arrays inputs() const {
    arrays in{random_values(shape.rows() * shape.channels(), "x")};
    for (std::size_t i = 0; i < parameters; ++i) {
      bool const gain = i == 0 || i == 6;
      in.push_back(
          random_values(parameter_sizes()[i], "parameter " + std::to_string(i), 0.5, gain ? 1 : 0));
    }
    return in;
  }
  arrays weights() const { return {random_values(shape.rows() * shape.channels(), "dy")}; }
};

constexpr gpt2_block_shape small = make_gpt2_block_shape(2, 5, 6, 3);
constexpr random_key place{.seed = 3, .step = 5, .sample = 7, .block = 2};

}  // namespace

TEST_CASE("GPT-2 block: gradients, precision, bits") {
  block_case const c{small};
  examine(c, c.inputs(), c.weights(), 0x1p-5);
}

TEST_CASE("GPT-2 block with dropout: gradients, precision, bits") {
  block_case const c{small, make_gpt2_block_dropout(place, 0.2, 0.3)};
  examine(c, c.inputs(), c.weights(), 0x1p-5);
}

TEST_CASE("GPT-2 block: an MLP of another width") {
  gpt2_block_shape shape = small;
  shape.inner = 7;  // below 3 C: the temporary must still hold dqkv
  block_case const c{shape, make_gpt2_block_dropout(place, 0, 0.3)};
  examine(c, c.inputs(), c.weights(), 0x1p-5);
}

TEST_CASE("GPT-2 block: larger shapes") {
  block_case const c{make_gpt2_block_shape(2, 70, 48, 4), make_gpt2_block_dropout(place, 0.1, 0.1)};
  check_close<float>(c, c.inputs(), c.weights(), 1e-4);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-3);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

TEST_CASE_TEMPLATE("GPT-2 block: every save level rebuilds the bits", T, float, bfloat16) {
  for (double const p : {0.0, 0.3}) {
    block_case c{small, make_gpt2_block_dropout(place, p, p)};
    memory m;
    auto const kept = c.template operator()<T>(m, c.inputs(), c.weights());
    for (gpt2_block_level const level :
         {gpt2_block_level::cheap, gpt2_block_level::attention, gpt2_block_level::input}) {
      c.rebuild = &level;
      auto const again = c.template operator()<T>(m, c.inputs(), c.weights());
      CHECK(same_bits(again.outputs, kept.outputs));
      CHECK(same_bits(again.gradients, kept.gradients));
    }
    CHECK(m.guards_intact());
  }
}

TEST_CASE("GPT-2 block: operators come in the order of the size table, with its workspaces") {
  block_case const c{small};
  auto const sizes = make_gpt2_block_sizes<float>(small, false);
  CHECK(sizes.temporary[0].elements == 0);
  memory m;
  auto const in = c.inputs();
  std::array<float const*, block_case::parameters> values{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = m.put<float>(in[i + 1]);
  }
  std::vector<operator_size> seen;
  auto op = [&m, seen = &seen](std::string_view name, length elements) mutable {
    seen->push_back({name, elements});
    return m.make<float>(elements);
  };
  gpt2_block_forward(small,
                     static_cast<float const*>(m.put<float>(in[0])),
                     block_case::name<float const>(values),
                     {},
                     c.make_saved<float>(m, sizes),
                     m.make<float>(60),
                     op);
  REQUIRE(seen.size() == sizes.forward.size());
  for (std::size_t i = 0; i < seen.size(); ++i) {
    CHECK(seen[i].name == sizes.forward[i].name);
    CHECK(seen[i].workspace == sizes.forward[i].workspace);
  }
}

}  // namespace gpt2_block_test
