// SPDX-License-Identifier: Apache-2.0
// Parameter totals of published models of every family, their tables, and what makes families differ.

#include "protrain/model/decoder.hpp"

#include "test/support/published.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace decoder_test {

namespace {

using namespace protrain;
using model::decoder_config;
using model::family;
using test::opt;
using test::opt_350m;
using test::published;
using test::published_models;
using test::qwen3_4b;

std::vector<std::string> names_in(decoder_config const& c, std::uint32_t block) {
  std::vector<std::string> out;
  for (model::parameter const& p : decoder_parameters(c, dtype::bf16)) {
    if (p.uses.front() == block_id{block}) {
      out.emplace_back(p.name.view());
    }
  }
  return out;
}

decoder_config small(family type) {
  return {.type = type, .layers = 1, .hidden = 8, .heads = 2, .inner = 16, .vocabulary = 10};
}

TEST_CASE("parameters of published models, as they are published") {
  for (published const& p : published_models()) {
    CAPTURE(p.name);
    CHECK(parameter_count(p.config) == p.parameters);
    auto const table = decoder_parameters(p.config, dtype::bf16);
    CHECK(std::accumulate(
              table.begin(), table.end(), std::uint64_t{0}, [](std::uint64_t n, auto const& row) {
                return n + elements(row);
              }) == p.parameters);
  }
}

TEST_CASE("a LLaMA's table is that of its blocks") {
  for (bool const tied : {false, true}) {
    model::llama_config const c{.layers = 3,
                                .hidden = 48,
                                .heads = 4,
                                .key_heads = 2,
                                .head_channels = 16,
                                .inner = 96,
                                .vocabulary = 256,
                                .tied = tied};
    CHECK(decoder_parameters(decoder_of(c), dtype::bf16) == llama_parameters(c, dtype::bf16));
  }
}

TEST_CASE("OPT: biases everywhere, two rows more than positions, the second norm's odd name") {
  decoder_config c = opt(1, 8, 2);
  auto const table = decoder_parameters(c, dtype::bf16);
  CHECK(table[1].name.view() == "model.decoder.embed_positions.weight");
  CHECK(table[1].shape == std::vector<std::uint64_t>{2050, 8});
  std::string const layer = "model.decoder.layers.0.";
  CHECK(names_in(c, 1) == std::vector<std::string>{layer + "self_attn_layer_norm.weight",
                                                   layer + "self_attn_layer_norm.bias",
                                                   layer + "self_attn.q_proj.weight",
                                                   layer + "self_attn.q_proj.bias",
                                                   layer + "self_attn.k_proj.weight",
                                                   layer + "self_attn.k_proj.bias",
                                                   layer + "self_attn.v_proj.weight",
                                                   layer + "self_attn.v_proj.bias",
                                                   layer + "self_attn.out_proj.weight",
                                                   layer + "self_attn.out_proj.bias",
                                                   layer + "final_layer_norm.weight",
                                                   layer + "final_layer_norm.bias",
                                                   layer + "fc1.weight",
                                                   layer + "fc1.bias",
                                                   layer + "fc2.weight",
                                                   layer + "fc2.bias"});
  CHECK(table.front().uses == std::vector<block_id>{block_id{0}, block_id{2}});
  c.norm_weights = false;
  CHECK(names_in(c, 1).size() == 12);
  CHECK(names_in(c, 2).empty());  // the head has the tied embedding and a norm without weights
}

TEST_CASE("OPT-350M: narrow embeddings are projected, norms follow, none before the head") {
  decoder_config const c = opt_350m();
  CHECK(names_in(c, 0).back() == "model.decoder.project_in.weight");
  CHECK(names_in(c, 25) == std::vector<std::string>{"model.decoder.project_out.weight"});
  auto const layer = names_in(c, 1);
  CHECK(layer.front() == "model.decoder.layers.0.self_attn.q_proj.weight");
  CHECK(layer.back() == "model.decoder.layers.0.final_layer_norm.bias");
}

TEST_CASE("GPT-2: one tensor for queries, keys and values") {
  decoder_config const c = decoder_of(model::gpt2_config{.layers = 1, .hidden = 8, .heads = 2});
  auto const table = decoder_parameters(c, dtype::f32);
  CHECK(table[4].name.view() == "h.0.attn.c_attn.weight");
  CHECK(table[4].shape == std::vector<std::uint64_t>{24, 8});
  CHECK(table[5].shape == std::vector<std::uint64_t>{24});
}

TEST_CASE("Qwen: biases of queries, keys and values; norms of heads") {
  decoder_config two = small(family::qwen2);
  two.query_bias = true;
  CHECK(names_in(two, 1).size() == 12);
  CHECK(names_in(two, 1)[2] == "model.layers.0.self_attn.q_proj.bias");
  CHECK(names_in(two, 1)[7] == "model.layers.0.self_attn.o_proj.weight");
  auto const three = names_in(small(family::qwen3), 1);
  CHECK(three.size() == 11);
  CHECK(three[4] == "model.layers.0.self_attn.q_norm.weight");
  CHECK(three[5] == "model.layers.0.self_attn.k_norm.weight");
  auto const table = decoder_parameters(qwen3_4b, dtype::bf16);
  CHECK(table[5].shape == std::vector<std::uint64_t>{128});
  CHECK(table[2].shape == std::vector<std::uint64_t>{4096, 2560});  // heads x channels isn't hidden
}

TEST_CASE("matrices decay, vectors don't; all of one dtype, in order of use") {
  for (published const& p : published_models()) {
    CAPTURE(p.name);
    block_id last{0};
    for (model::parameter const& row : decoder_parameters(p.config, dtype::f16)) {
      CHECK(row.type == dtype::f16);
      CHECK(row.decay == (row.shape.size() == 2));
      CHECK(row.uses.front() >= last);
      last = row.uses.front();
    }
  }
}

TEST_CASE("counts beyond 32 bits") {
  // The embedding of Qwen2.5-72B takes 2,491,416,576 bytes in bf16.
  auto const table = decoder_parameters(test::qwen25_72b, dtype::bf16);
  CHECK(elements(table.front()) * 2 == 2'491'416'576);
}

}  // namespace

}  // namespace decoder_test
