// SPDX-License-Identifier: Apache-2.0
// Embeddings: gradients with repeated ids and dropout, bits, one rounding of a row's sum.

#include "examples/transformer/embedding.hpp"

#include "test/unit/transformer/harness.hpp"

namespace embedding_test {

using namespace transformer;
using namespace transformer::harness;

namespace {

constexpr embedding_shape shape{
    .samples = 2, .tokens = 5, .channels = 6, .vocabulary = 11, .positions = 8};
constexpr std::int32_t ids[] = {3, 0, 3, 10, 3, 7, 3, 0, 1, 10};

struct embedding_case {
  dropout_key key{};

  template <class T>
  outcome operator()(memory& mem, arrays const& in, arrays const& weights) const {
    length const n = shape.rows() * shape.channels;
    T const* const wte = mem.put<T>(in[0]);
    T const* const wpe = mem.put<T>(in[1]);
    T const* const dy = mem.put<T>(weights[0]);
    T* const y = mem.make<T>(n);
    T* const dwte = mem.make<T>(shape.vocabulary * shape.channels);
    T* const dwpe = mem.make<T>(shape.positions * shape.channels);
    embedding_forward(shape, ids, wte, wpe, key, y);
    embedding_backward(shape,
                       ids,
                       dy,
                       key,
                       dwte,
                       dwpe,
                       mem.make<accumulator_t<T>>(embedding_backward_workspace(shape)),
                       mem.make<std::int32_t>(embedding_backward_lists(shape)));
    return {{values_of(y, n)},
            {values_of(dwte, shape.vocabulary * shape.channels),
             values_of(dwpe, shape.positions * shape.channels)}};
  }
};

arrays inputs() {
  return {random_values(shape.vocabulary * shape.channels, "wte"),
          random_values(shape.positions * shape.channels, "wpe")};
}

}  // namespace

TEST_CASE("embedding: gradients, precision, bits") {
  arrays const weights{random_values(shape.rows() * shape.channels, "dy")};
  examine(embedding_case{}, inputs(), weights, 0x1p-7);
  examine(embedding_case{{{.seed = 1, .sample = 4}, 0.3}}, inputs(), weights, 0x1p-7);
}

TEST_CASE("embedding: a row's gradients are added in fp32, tokens ascending, rounded once") {
  // 1 + 4 x 2^-9 for entry 3, in bfloat16 sums 1, in fp32 1 + 2^-7.
  std::vector<double> dy(static_cast<std::size_t>(shape.rows() * shape.channels), 0x1p-9);
  std::fill_n(dy.begin(), 6, 1.0);
  memory m;
  auto const out = embedding_case{}.operator()<bfloat16>(m, inputs(), {dy});
  CHECK(out.gradients[0][3 * 6] == to_double(from_double<bfloat16>(1 + 3 * 0x1p-9)));
  CHECK(out.gradients[0][2 * 6] == 0);  // an entry that no token names
  // 2^24 + 1 + 1 + 1 in fp32 from the left is 2^24: ascending order shows.
  std::fill(dy.begin(), dy.end(), 1.0);
  std::fill_n(dy.begin(), 6, 0x1p24);
  auto const large = embedding_case{}.operator()<float>(m, inputs(), {dy});
  CHECK(large.gradients[0][3 * 6] == 0x1p24);
  CHECK(large.gradients[0][0] == 2.0);
}

TEST_CASE("embedding: without positions a row of the table comes out as it is") {
  embedding_shape alone = shape;
  alone.positions = 0;
  memory m;
  length const n = shape.rows() * shape.channels;
  auto const table = random_values(shape.vocabulary * shape.channels, "wte");
  bfloat16 const* const none = nullptr;
  bfloat16 const* const wte = m.put<bfloat16>(table);
  bfloat16* const y = m.make<bfloat16>(n);
  embedding_forward(alone, ids, wte, none, {}, y);
  auto const out = values_of(y, n);
  for (std::size_t i = 0; i < out.size(); ++i) {
    CHECK(out[i] == table[static_cast<std::size_t>(ids[i / 6]) * 6 + i % 6]);
  }
  bfloat16 const* const dy = m.put<bfloat16>(random_values(n, "dy"));
  bfloat16* const alone_dwte = m.make<bfloat16>(shape.vocabulary * shape.channels);
  bfloat16* const dwte = m.make<bfloat16>(shape.vocabulary * shape.channels);
  bfloat16* const dwpe = m.make<bfloat16>(shape.positions * shape.channels);
  auto const backward = [&](embedding_shape const& s, bfloat16* to, bfloat16* places) {
    embedding_backward(s,
                       ids,
                       dy,
                       {},
                       to,
                       places,
                       m.make<float>(embedding_backward_workspace(s)),
                       m.make<std::int32_t>(embedding_backward_lists(s)));
    return values_of(to, shape.vocabulary * shape.channels);
  };
  CHECK(same_bits({backward(alone, alone_dwte, nullptr)}, {backward(shape, dwte, dwpe)}));
  CHECK(m.guards_intact());
}

}  // namespace embedding_test
