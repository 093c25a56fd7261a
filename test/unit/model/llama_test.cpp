// SPDX-License-Identifier: Apache-2.0
// What follows from a LLaMA's shape: parameter counts of published models, the table, operations.

#include "protrain/model/llama.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace llama_test {

namespace {

using namespace protrain;
using model::llama_config;

constexpr llama_config llama_3_8b{.layers = 32,
                                  .hidden = 4096,
                                  .heads = 32,
                                  .key_heads = 8,
                                  .inner = 14'336,
                                  .vocabulary = 128'256,
                                  .positions = 8192,
                                  .rope_theta = 500'000};
constexpr llama_config llama_3_2_1b{.layers = 16,
                                    .hidden = 2048,
                                    .heads = 32,
                                    .key_heads = 8,
                                    .inner = 8192,
                                    .vocabulary = 128'256,
                                    .positions = 131'072,
                                    .tied = true,
                                    .rope_theta = 500'000};
constexpr llama_config tiny{.layers = 4,
                            .hidden = 32,
                            .heads = 4,
                            .key_heads = 2,
                            .inner = 96,
                            .vocabulary = 256,
                            .positions = 32};

std::uint64_t sum(std::vector<model::parameter> const& table) {
  return std::accumulate(
      table.begin(), table.end(), std::uint64_t{0}, [](std::uint64_t n, auto const& p) {
        return n + model::elements(p);
      });
}

TEST_CASE("parameters of published models, as they are published") {
  struct published {
    llama_config config;
    std::uint64_t parameters;
  };
  for (published const& p : std::vector<published>{
           {{}, 6'738'415'616},  // Llama-2-7B: the defaults
           {{.layers = 40, .hidden = 5120, .heads = 40, .inner = 13'824}, 13'015'864'320},
           {{.layers = 80, .hidden = 8192, .heads = 64, .key_heads = 8, .inner = 28'672},
            68'976'648'192},
           {llama_3_8b, 8'030'261'248},
           {llama_3_2_1b, 1'235'814'400}}) {
    CAPTURE(p.parameters);
    CHECK(llama_parameter_count(p.config) == p.parameters);
    CHECK(sum(llama_parameters(p.config, dtype::bf16)) == p.parameters);
  }
}

TEST_CASE("heads: as many for keys as for queries, of hidden / heads channels, unless said") {
  CHECK(llama_config{.heads = 8}.key_heads == 8);
  CHECK(llama_config{.hidden = 64, .heads = 4}.head_channels == 16);
  llama_config const wide{.hidden = 64, .heads = 4, .key_heads = 2, .head_channels = 40};
  CHECK(wide.query_width() == 160);
  CHECK(wide.key_width() == 80);
  auto const table = llama_parameters(wide, dtype::f32);
  CHECK(table[2].shape == std::vector<std::uint64_t>{160, 64});
  CHECK(table[3].shape == std::vector<std::uint64_t>{80, 64});
  CHECK(table[5].shape == std::vector<std::uint64_t>{64, 160});
  CHECK(llama_parameter_count(wide) == sum(table));
}

TEST_CASE("the table: published names in order of use, norms without decay, ties once") {
  auto const table = llama_parameters(tiny, dtype::bf16);
  REQUIRE(table.size() == 2 + 4 * 9 + 1);
  std::vector<std::string> const names{"model.embed_tokens.weight",
                                       "model.layers.0.input_layernorm.weight",
                                       "model.layers.0.self_attn.q_proj.weight",
                                       "model.layers.0.self_attn.k_proj.weight",
                                       "model.layers.0.self_attn.v_proj.weight",
                                       "model.layers.0.self_attn.o_proj.weight",
                                       "model.layers.0.post_attention_layernorm.weight",
                                       "model.layers.0.mlp.gate_proj.weight",
                                       "model.layers.0.mlp.up_proj.weight",
                                       "model.layers.0.mlp.down_proj.weight"};
  for (std::size_t i = 0; i < names.size(); ++i) {
    CHECK(table[i].name.view() == names[i]);
    CHECK(table[i].uses == std::vector<block_id>{block_id{i == 0 ? 0U : 1U}});
  }
  CHECK(table[37].name.view() == "model.norm.weight");
  CHECK(table.back().name.view() == "lm_head.weight");
  for (model::parameter const& p : table) {
    CHECK(p.type == dtype::bf16);
    CHECK(p.trainable);
    CHECK(p.decay == (p.name.view().find("norm") == std::string_view::npos));
  }
  llama_config tied = tiny;
  tied.tied = true;
  auto const shared = llama_parameters(tied, dtype::bf16);
  CHECK(shared.size() == table.size() - 1);
  CHECK(shared.front().uses == std::vector<block_id>{block_id{0}, block_id{5}});
}

TEST_CASE("operations: two per token and weight, and four per pair of tokens and channel") {
  model::job const j{.micro_batch = 2, .sequence = 1024, .type = dtype::bf16};
  std::uint64_t const weights = 4096 * (2 * 4096 + 2 * 1024 + 3 * 14'336);
  auto const layer = llama_layer_facts(llama_3_8b, j);
  CHECK(layer.flops == 2 * 2048 * weights + 4 * 2048 * 1024 * 4096ULL);
  CHECK(layer.input == 2048 * 4096 * 2);
  CHECK(layer.output == layer.input);
  auto const head = llama_head_facts(llama_3_8b, j);
  CHECK(head.flops == 2 * 2048 * 4096 * 128'256ULL);
  CHECK(head.output == 0);
  CHECK(llama_embedding_facts(llama_3_8b, j).saved == 0);
}

TEST_CASE("constant evaluation; sizes that overflow are contract errors") {
  static_assert(llama_parameter_count(llama_3_8b) == 8'030'261'248);
  static_assert(llama_parameters(tiny, dtype::f32).size() == 39);
  static_assert(llama_layer_facts(tiny, {.sequence = 32}).saved > 0);
  test::throwing_contracts const guard;
  CHECK_THROWS_AS((void)model::llama_parameter_count({.layers = ~std::uint64_t{0}}),
                  test::contract_broken);
  CHECK_THROWS_AS((void)model::llama_layer_facts(tiny, {.sequence = 1ULL << 40U}),
                  test::contract_broken);
}

}  // namespace

}  // namespace llama_test
