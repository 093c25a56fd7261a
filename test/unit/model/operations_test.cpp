// SPDX-License-Identifier: Apache-2.0
// Operators of a decoder's blocks against what its written blocks say, and against sums by hand.

#include "protrain/model/operations.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

namespace operations_test {

namespace {

using namespace protrain;
using model::attention_kind;
using model::decoder_config;
using model::family;
using model::operation;

constexpr model::llama_config llama_3_8b{.layers = 32,
                                         .hidden = 4096,
                                         .heads = 32,
                                         .key_heads = 8,
                                         .inner = 14'336,
                                         .vocabulary = 128'256,
                                         .positions = 8192};
constexpr model::job job{.micro_batch = 2, .sequence = 1024, .type = dtype::bf16};
constexpr std::uint64_t rows = 2048;

operation named(model::block_operations const& block, std::string_view name) {
  auto const found = std::ranges::find(block.operators, name, &operation::name);
  REQUIRE(found != block.operators.end());
  return *found;
}

std::uint64_t sum(model::block_operations const& block, std::uint64_t operation::* what) {
  std::uint64_t out = 0;
  for (operation const& o : block.operators) {
    out += o.*what;
  }
  return out;
}

std::uint64_t saved(model::block_operations const& block) {
  return sum(block, &operation::saved) + sum(block, &operation::kept);
}

TEST_CASE("eager attention: a LLaMA's layer does and saves what its block says") {
  for (std::uint64_t const sequence : {1U, 100U, 1024U}) {
    model::job j = job;
    j.sequence = sequence;
    auto const said = llama_layer_facts(llama_3_8b, j);
    auto const layer =
        layer_operations(model::decoder_of(llama_3_8b), j, {.attention = attention_kind::eager});
    CHECK(sum(layer, &operation::flops) == said.flops);
    CHECK(sum(layer, &operation::backward_flops) + sum(layer, &operation::weight_flops) ==
          2 * said.flops);
    CHECK(saved(layer) == said.saved);
    CHECK(layer.input == granules(said.input));
    CHECK(layer.output == granules(said.output));
  }
}

TEST_CASE("eager attention: a GPT-2's layer, by hand") {
  auto const c = model::decoder_of(model::gpt2_config{});
  auto const layer = layer_operations(c, job, {.attention = attention_kind::eager});
  std::uint64_t const products = 2 * rows * 768 * (4 * 768 + 2 * 3072);
  CHECK(sum(layer, &operation::flops) == products + 4 * rows * 1024 * 768);
  // Norms, attention and residual; queries, keys and values; two of the MLP; probabilities; means
  // and deviations.
  std::uint64_t const values = 4 * 768 + 3 * 768 + 2 * 3072 + 12 * 1024;
  CHECK(saved(layer) == rows * values * 2 + 4 * rows * 4);
}

TEST_CASE("fused attention keeps one number a head and token, and does half of the pairs") {
  auto const c = model::decoder_of(llama_3_8b);
  auto const eager = layer_operations(c, job, {.attention = attention_kind::eager});
  auto const fused = layer_operations(c, job, {});
  std::uint64_t const probabilities = rows * 32 * 1024 * 2;
  CHECK(saved(eager) - saved(fused) == probabilities - 32 * rows * 4);
  operation const core = named(fused, "attention");
  CHECK(core.flops == 4 * 2 * (1024ULL * 1025 / 2) * 4096);
  CHECK(core.backward_flops * 2 == core.flops * 5);
  CHECK(core.moved == rows * (4096 + 2 * 1024 + 4096) * 2);
}

TEST_CASE("a window bounds the pairs of fused attention only where it is shorter than the sample") {
  decoder_config c{.type = family::mistral, .key_heads = 8, .inner = 14'336, .window = 256};
  auto const pairs = [&] {
    return named(layer_operations(c, job, {}), "attention").flops / (4 * 4096 * 2);
  };
  std::uint64_t expected = 0;
  for (std::uint64_t token = 1; token <= 1024; ++token) {
    expected += std::min<std::uint64_t>(token, 256);
  }
  CHECK(pairs() == expected);
  c.window = 4096;
  CHECK(pairs() == 1024 * 1025 / 2);
  c.window = 0;
  CHECK(pairs() == 1024 * 1025 / 2);
}

TEST_CASE("levels: norms and activations first, then what products make") {
  auto const layer = layer_operations(model::decoder_of(llama_3_8b), job, {});
  for (operation const& o : layer.operators) {
    CAPTURE(o.name);
    bool const cheap = o.name == "attention_norm" || o.name == "mlp_norm" || o.name == "activation";
    bool const made = o.name == "qkv" || o.name == "gate_up";
    bool const product = made || o.name == "rotary";  // which turns what a product made, in place
    CHECK((o.from == model::drop::cheap) == cheap);
    CHECK((o.from == model::drop::products) == product);
    CHECK((o.saved > 0) == (cheap || made));
  }
}

TEST_CASE("relu's output tells its derivative: what enters it isn't kept") {
  decoder_config c{.type = family::opt, .hidden = 64, .heads = 4, .inner = 256};
  CHECK(named(layer_operations(c, job, {}), "up").saved == rows * 256 * 2);
  c.relu = true;
  auto const layer = layer_operations(c, job, {});
  CHECK(named(layer, "up").saved == 0);
  CHECK(named(layer, "activation").saved == rows * 256 * 2);
  CHECK(named(layer, "activation").from == model::drop::products);
}

TEST_CASE("norms after their halves keep what enters them") {
  decoder_config c{.type = family::opt, .hidden = 64, .heads = 4, .inner = 256};
  c.norm_first = false;
  auto const layer = layer_operations(c, job, {});
  CHECK(layer.operators.back().name == "mlp_norm");
  CHECK(layer.operators.back().saved == 0);
  CHECK(named(layer, "down").kept == rows * 64 * 2);
}

TEST_CASE("norms of heads keep queries and keys from before and after") {
  decoder_config const plain{.type = family::qwen2, .hidden = 64, .heads = 4, .key_heads = 2};
  decoder_config normed = plain;
  normed.type = family::qwen3;
  auto const extra =
      saved(layer_operations(normed, job, {})) - saved(layer_operations(plain, job, {}));
  CHECK(extra == rows * (64 + 32) * 2 + 6 * rows * 4);
}

TEST_CASE("the head: logits are kept, or made twice a chunk at a time") {
  auto const c = model::decoder_of(llama_3_8b);
  operation const whole = named(head_operations(c, job, {}), "logits_loss");
  operation const chunked = named(head_operations(c, job, {.logit_chunks = 8}), "logits_loss");
  std::uint64_t const logits = rows * 128'256 * 2;
  CHECK(whole.flops == 2 * rows * 4096 * 128'256);
  CHECK(whole.kept == logits + rows * 4);
  CHECK(chunked.kept == rows * 4);
  CHECK(chunked.scratch_forward == logits / 8);
  CHECK(chunked.scratch_backward - whole.scratch_backward == logits / 8);
  CHECK(whole.backward_flops + whole.weight_flops == 2 * whole.flops);
  CHECK(chunked.backward_flops + chunked.weight_flops == 3 * whole.flops);
  // Each chunk reads the weights again, in every pass, and adds to their gradient.
  std::uint64_t const again = 7 * 4096ULL * 128'256 * 2;
  CHECK(chunked.moved == whole.moved + again);
  CHECK(chunked.backward_moved == whole.backward_moved + chunked.moved + again);
  CHECK(chunked.weight_moved == whole.weight_moved + 2 * again);
  // More chunks than rows are one row each.
  operation const rowwise =
      named(head_operations(c, job, {.logit_chunks = 1U << 20U}), "logits_loss");
  CHECK(rowwise.scratch_forward == granules(128'256 * 2));
}

TEST_CASE("narrow embeddings are projected on both ends") {
  decoder_config c{.type = family::opt, .hidden = 64, .heads = 4, .embedding = 16};
  CHECK(named(embedding_operations(c, job), "project_in").flops == 2 * rows * 16 * 64);
  CHECK(named(head_operations(c, job, {}), "project_out").kept == rows * 16 * 2);
  CHECK(named(head_operations(c, job, {}), "logits_loss").flops == 2 * rows * 16 * 32'000);
}

TEST_CASE("sums of all heads are one tensor, rounded up once") {
  model::job one = job;
  one.micro_batch = 1;
  one.sequence = 1;
  auto const layer = layer_operations(model::decoder_of(llama_3_8b), one, {});
  CHECK(named(layer, "attention").kept == 4096 * 2 + 256);  // 32 numbers, not 32 granules
  CHECK(named(layer, "attention_norm").kept == 256);
  auto const gpt2 = layer_operations(model::decoder_of(model::gpt2_config{}), one, {});
  CHECK(named(gpt2, "attention_norm").kept == 512);
}

TEST_CASE("sizes beyond 32 bits") {
  model::job const large{.micro_batch = 64, .sequence = 8192, .type = dtype::bf16};
  auto const layer =
      layer_operations(model::decoder_of(llama_3_8b), large, {.attention = attention_kind::eager});
  CHECK(named(layer, "scores").saved == std::uint64_t{64} * 8192 * 32 * 8192 * 2);
}

}  // namespace

}  // namespace operations_test
