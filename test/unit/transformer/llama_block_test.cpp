// SPDX-License-Identifier: Apache-2.0
// A whole LLaMA block over the memory that its own size tables ask for: gradients of every
// parameter, precision, bits, and values against plain loops in fp64.

#include "examples/transformer/llama_block.hpp"

#include "test/unit/transformer/harness.hpp"

namespace llama_block_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

using numbers = std::vector<double>;

struct block_case {
  llama_block_shape shape;
  dropout_key dropout{};

  static constexpr std::size_t parameters = 9;

  std::array<length, parameters> parameter_sizes() const {
    length const c = shape.channels;
    length const a = shape.attention.channels;
    length const kv = shape.key_channels();
    length const f = shape.inner;
    return {c, a * c, kv * c, kv * c, c * a, c, f * c, f * c, c * f};
  }

  template <class P>
  static llama_block_parameters<P> name(std::array<P*, parameters> const& p) {
    return {p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7], p[8]};
  }

  template <class T>
  llama_block_saved<T> make_saved(memory& mem, llama_block_sizes const& sizes) const {
    auto const& s = sizes.saved;
    for (std::size_t i = 0; i < s.size(); ++i) {
      CHECK((s[i].kind == element_kind::accumulator) == (i == 1 || i == 7));
    }
    auto const value = [&](std::size_t i) { return mem.make<T>(s[i].elements); };
    auto const sum = [&](std::size_t i) { return mem.make<accumulator_t<T>>(s[i].elements); };
    return {value(0),
            sum(1),
            value(2),
            value(3),
            value(4),
            value(5),
            value(6),
            sum(7),
            value(8),
            value(9),
            value(10)};
  }

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& loss_weights) const {
    using real = accumulator_t<T>;
    length const n = shape.rows() * shape.channels;
    auto const sizes = make_llama_block_sizes<T>(shape);
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
    auto const saved = make_saved<T>(mem, sizes);
    llama_block_forward(shape, x, weights, dropout, saved, y, op);
    auto const& t = sizes.temporary;
    llama_block_temporary<T> const temporary{mem.make<T>(t[0].elements),
                                             mem.make<T>(t[1].elements),
                                             mem.make<real>(t[2].elements),
                                             mem.make<T>(t[3].elements)};
    llama_block_backward(
        shape, x, weights, dropout, saved, dy, dx, name<T>(gradients), temporary, op);
    outcome out{{values_of(y, n)}, {values_of(dx, n)}};
    for (std::size_t i = 0; i < parameters; ++i) {
      out.gradients.push_back(values_of(gradients[i], parameter_sizes()[i]));
    }
    return out;
  }

  arrays inputs() const {
    arrays in{random_values(shape.rows() * shape.channels, "x")};
    for (std::size_t i = 0; i < parameters; ++i) {
      bool const gain = i == 0 || i == 5;
      in.push_back(
          random_values(parameter_sizes()[i], "parameter " + std::to_string(i), 0.5, gain ? 1 : 0));
    }
    return in;
  }
  arrays weights() const { return {random_values(shape.rows() * shape.channels, "dy")}; }
};

/// x w' of rows of `inputs` numbers.
numbers product(numbers const& x, numbers const& w, std::size_t inputs) {
  numbers out;
  for (std::size_t row = 0; row < x.size(); row += inputs) {
    for (std::size_t first = 0; first < w.size(); first += inputs) {
      double sum = 0;
      for (std::size_t i = 0; i < inputs; ++i) {
        sum += x[row + i] * w[first + i];
      }
      out.push_back(sum);
    }
  }
  return out;
}

numbers normal(numbers x, numbers const& gain, double epsilon) {
  for (std::size_t row = 0; row < x.size(); row += gain.size()) {
    double squares = 0;
    for (std::size_t i = 0; i < gain.size(); ++i) {
      squares += x[row + i] * x[row + i];
    }
    for (std::size_t i = 0; i < gain.size(); ++i) {
      x[row + i] *= gain[i] / std::sqrt(squares / static_cast<double>(gain.size()) + epsilon);
    }
  }
  return x;
}

numbers sum(numbers a, numbers const& b) {
  for (std::size_t i = 0; i < a.size(); ++i) {
    a[i] += b[i];
  }
  return a;
}

/// Turns heads of `width` numbers by their tokens' positions.
void turn(numbers& x, std::size_t channels, std::size_t width, std::size_t tokens, double theta) {
  std::size_t const half = width / 2;
  for (std::size_t at = 0; at < x.size(); ++at) {
    std::size_t const i = at % channels % width;
    if (i < half) {
      double const angle = static_cast<double>(at / channels % tokens) *
                           std::pow(theta, -static_cast<double>(i) / static_cast<double>(half));
      double const first = x[at];
      x[at] = first * std::cos(angle) - x[at + half] * std::sin(angle);
      x[at + half] = x[at + half] * std::cos(angle) + first * std::sin(angle);
    }
  }
}

/// Causal attention of queries [rows, a] over keys and values [rows, kv].
numbers attention(numbers const& q, numbers const& k, numbers const& v, attention_shape const& s) {
  auto const width = static_cast<std::size_t>(s.head_channels());
  auto const a = static_cast<std::size_t>(s.channels);
  std::size_t const kv = width * static_cast<std::size_t>(s.key_heads);
  auto const tokens = static_cast<std::size_t>(s.tokens);
  numbers out;
  for (std::size_t at = 0; at < q.size(); ++at) {
    std::size_t const row = at / a;
    std::size_t const head = at % a / width;
    std::size_t const shared = head / (a / kv) * width;
    double weights = 0;
    double mean = 0;
    for (std::size_t r = row - row % tokens; r <= row; ++r) {
      double score = 0;
      for (std::size_t i = 0; i < width; ++i) {
        score += q[row * a + head * width + i] * k[r * kv + shared + i];
      }
      double const weight = std::exp(score / std::sqrt(static_cast<double>(width)));
      weights += weight;
      mean += weight * v[r * kv + shared + at % width];
    }
    out.push_back(mean / weights);
  }
  return out;
}

numbers expected(llama_block_shape const& s, arrays const& in) {
  auto const c = static_cast<std::size_t>(s.channels);
  auto const a = static_cast<std::size_t>(s.attention.channels);
  auto const kv = static_cast<std::size_t>(s.key_channels());
  auto const width = static_cast<std::size_t>(s.attention.head_channels());
  auto const tokens = static_cast<std::size_t>(s.attention.tokens);
  numbers const first = normal(in[0], in[1], s.epsilon);
  numbers q = product(first, in[2], c);
  numbers k = product(first, in[3], c);
  turn(q, a, width, tokens, s.theta);
  turn(k, kv, width, tokens, s.theta);
  numbers const mixed = attention(q, k, product(first, in[4], c), s.attention);
  numbers const residual = sum(in[0], product(mixed, in[5], a));
  numbers const second = normal(residual, in[6], s.epsilon);
  numbers gate = product(second, in[7], c);
  numbers const up = product(second, in[8], c);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
  }
  return sum(residual, product(gate, in[9], static_cast<std::size_t>(s.inner)));
}

/// Heads times their channels is not the block's width, two query heads share each key head.
constexpr llama_block_shape small{
    .attention = {2, 5, 16, 4, 2}, .channels = 6, .inner = 10, .epsilon = 1e-5, .theta = 100};
constexpr random_key place{.seed = 3, .step = 5, .sample = 7, .block = 2};

}  // namespace

TEST_CASE("LLaMA block: values") {
  llama_block_shape one = small;
  one.attention = {3, 4, 6, 3};  // no shared heads
  llama_block_shape all = small;
  all.attention = {1, 6, 12, 3, 1};  // one for all
  for (llama_block_shape const& s : {small, one, all}) {
    block_case const c{s};
    memory m;
    auto const out = c.operator()<double>(m, c.inputs(), c.weights());
    CHECK(relative_distance(out.outputs, {expected(s, c.inputs())}) < 1e-13);
  }
}

TEST_CASE("LLaMA block: gradients, precision, bits") {
  block_case const c{small};
  examine(c, c.inputs(), c.weights(), 0x1p-5);
}

TEST_CASE("LLaMA block with dropout: gradients, precision, bits") {
  block_case const c{small, {place, 0.3}};
  examine(c, c.inputs(), c.weights(), 0x1p-5);
  block_case const none{small};
  memory m;
  CHECK_FALSE(same_bits(none.operator()<float>(m, c.inputs(), c.weights()).outputs,
                        c.operator()<float>(m, c.inputs(), c.weights()).outputs));
}

TEST_CASE("LLaMA block: an MLP narrower than queries, keys and values") {
  block_case c{small};
  c.shape.inner = 3;  // the temporaries must still hold dqkv and dattention
  examine(c, c.inputs(), c.weights(), 0x1p-5);
}

TEST_CASE("LLaMA block: larger shapes") {
  block_case const c{{.attention = {2, 70, 48, 6, 2}, .channels = 40, .inner = 200}, {place, 0.1}};
  check_close<float>(c, c.inputs(), c.weights(), 1e-4);
  check_close<bfloat16>(c, c.inputs(), c.weights(), 0x1p-3);
  check_addresses<float>(c, c.inputs(), c.weights());
  check_addresses<bfloat16>(c, c.inputs(), c.weights());
}

TEST_CASE("LLaMA block: operators come in the order of the size table, with its workspaces") {
  block_case const c{small};
  auto const sizes = make_llama_block_sizes<float>(small);
  memory m;
  auto const in = c.inputs();
  std::array<float const*, block_case::parameters> values{};
  std::array<float*, block_case::parameters> gradients{};
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = m.put<float>(in[i + 1]);
    gradients[i] = m.make<float>(c.parameter_sizes()[i]);
  }
  std::vector<operator_size> seen;
  auto op = [&](std::string_view name, length elements) {
    seen.push_back({name, elements});
    return m.make<float>(elements);
  };
  auto const check = [&](std::array<operator_size, 9> const& table) {
    REQUIRE(seen.size() == table.size());
    for (std::size_t i = 0; i < seen.size(); ++i) {
      CHECK(seen[i].name == table[i].name);
      CHECK(seen[i].workspace == table[i].workspace);
    }
    seen.clear();
  };
  float const* const x = m.put<float>(in[0]);
  auto const saved = c.make_saved<float>(m, sizes);
  auto const weights = block_case::name<float const>(values);
  llama_block_forward(small, x, weights, {}, saved, m.make<float>(60), op);
  check(sizes.forward);
  auto const& t = sizes.temporary;
  llama_block_backward(small,
                       x,
                       weights,
                       {},
                       saved,
                       x,
                       m.make<float>(60),
                       block_case::name<float>(gradients),
                       {m.make<float>(t[0].elements),
                        m.make<float>(t[1].elements),
                        m.make<float>(t[2].elements),
                        m.make<float>(t[3].elements)},
                       op);
  check(sizes.backward);
}

}  // namespace llama_block_test
