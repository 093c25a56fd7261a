// SPDX-License-Identifier: Apache-2.0
// Frozen parameters and adapters: which rows a table has then, and what operators still do.

#include "protrain/model/adapters.hpp"

#include "protrain/model/decoder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace adapters_test {

namespace {

using namespace protrain;
using model::block_operations;
using model::decoder_config;
using model::family;
using model::operation;
using model::parameter;

constexpr model::job job{.micro_batch = 1, .sequence = 256, .type = dtype::bf16};
constexpr decoder_config small{
    .layers = 2, .hidden = 64, .heads = 4, .inner = 192, .vocabulary = 500};

constexpr auto has(std::string_view part) {
  return [part](std::string_view name) { return name.find(part) != std::string_view::npos; };
}

std::vector<parameter> table_of(decoder_config const& c) {
  return decoder_parameters(c, dtype::bf16);
}

parameter named(std::vector<parameter> const& table, std::string_view name) {
  auto const found =
      std::ranges::find_if(table, [&](parameter const& p) { return p.name.view() == name; });
  REQUIRE(found != table.end());
  return *found;
}

/// The operator of a layer whose rows are those of block 1.
operation fitted(decoder_config const& c,
                 std::vector<parameter> const& table,
                 std::string_view name) {
  std::vector<parameter const*> rows;
  for (parameter const& p : table) {
    if (p.uses.front() == block_id{1}) {
      rows.push_back(&p);
    }
  }
  block_operations const layer = model::fitted(layer_operations(c, job, {}), rows, job);
  auto const found = std::ranges::find(layer.operators, name, &operation::name);
  REQUIRE(found != layer.operators.end());
  return *found;
}

operation whole(decoder_config const& c, std::string_view name) {
  return fitted(c, table_of(c), name);
}

TEST_CASE("what isn't named is frozen") {
  auto table = table_of(small);
  CHECK(train_only(table, has("layers.1.")) == 9);
  for (parameter const& p : table) {
    CHECK(p.trainable == has("layers.1.")(p.name.view()));
  }
  CHECK(train_only(table, has("nothing")) == 0);
  CHECK(train_only(table, has("")) == table.size());
}

TEST_CASE("adapters: two factors behind each matrix, of its dtype, block and extents") {
  auto table = table_of(small);
  std::size_t const before = table.size();
  train_only(table, has("nothing"));
  CHECK(add_adapters(table, 8, has("proj")) == 14);
  CHECK(table.size() == before + 28);
  parameter const a = named(table, "model.layers.0.mlp.down_proj.lora_A.weight");
  parameter const b = named(table, "model.layers.0.mlp.down_proj.lora_B.weight");
  CHECK(a.shape == std::vector<std::uint64_t>{8, 192});
  CHECK(b.shape == std::vector<std::uint64_t>{64, 8});
  CHECK(a.type == dtype::bf16);
  CHECK(a.trainable);
  CHECK(b.uses == std::vector<block_id>{block_id{1}});
  auto const at = std::ranges::find_if(table, [](parameter const& p) {
    return has("layers.0.mlp.down_proj.weight")(p.name.view());
  });
  CHECK_FALSE(at->trainable);
  CHECK((at + 1)->name == a.name);
  CHECK((at + 2)->name == b.name);
}

TEST_CASE("no adapters for vectors, embeddings and tied tensors; an untied head may have them") {
  decoder_config c = small;
  c.tied = true;
  auto tied = table_of(c);
  CHECK(add_adapters(tied, 4, has("embed_tokens")) == 0);
  CHECK(add_adapters(tied, 4, has("norm")) == 0);
  std::vector<parameter> shared{{.name = "x.weight",
                                 .shape = {8, 8},
                                 .type = dtype::bf16,
                                 .uses = {block_id{1}, block_id{2}}}};
  CHECK(add_adapters(shared, 4, has("x")) == 0);
  auto narrow = table_of(small);
  CHECK(add_adapters(narrow, 65, has("proj")) == 0);  // wider than the model
  CHECK(add_adapters(narrow, 64, has("proj")) == 14);
  auto untied = table_of(small);
  CHECK(add_adapters(untied, 4, has("lm_head")) == 1);
}

TEST_CASE("gradients of frozen matrices cost nothing, those of others what they did") {
  auto table = table_of(small);
  train_only(table, has("q_proj"));
  operation const all = whole(small, "qkv");
  operation const some = fitted(small, table, "qkv");
  CHECK(all.weight_flops == all.flops);
  CHECK(some.weight_flops == all.flops / 3);  // as wide as keys and values
  CHECK(some.weight_moved == all.weight_moved / 3);
  CHECK(some.backward_flops == all.backward_flops);
  CHECK(fitted(small, table, "down").weight_flops == 0);
  CHECK(fitted(small, table, "down").backward_flops == whole(small, "down").backward_flops);
  CHECK(fitted(small, table, "attention").backward_flops ==
        whole(small, "attention").backward_flops);
}

TEST_CASE("adapters add thin products and keep what is between them") {
  auto table = table_of(small);
  train_only(table, has("nothing"));
  add_adapters(table, 16, has("down_proj"));
  operation const o = fitted(small, table, "down");
  std::uint64_t const thin = 2 * 256 * 16 * (192 + 64);
  CHECK(o.flops == whole(small, "down").flops + thin);
  CHECK(o.backward_flops == whole(small, "down").backward_flops + thin);
  CHECK(o.weight_flops == thin);
  std::uint64_t const own = 16 * (192 + 64) * 2 + 256 * 16 * 2;  // the factors, and what is between
  operation const before = whole(small, "down");
  CHECK(o.moved == before.moved + own + 256 * (192 + 2 * 64) * 2);
  CHECK(o.backward_moved == before.backward_moved + own + 256 * (2 * 192 + 64) * 2);
  CHECK(o.weight_moved == own + 256 * (192 + 64) * 2);
  CHECK(o.scratch_backward == before.scratch_backward + 256 * 16 * 2);
  CHECK(o.kept == whole(small, "down").kept + 256 * 16 * 2);
}

TEST_CASE("an operator finds its weights in every family") {
  for (family const type :
       {family::gpt2, family::opt, family::llama, family::mistral, family::qwen2, family::qwen3}) {
    decoder_config c = small;
    c.type = type;
    CAPTURE(name_of(type));
    auto table = table_of(c);
    train_only(table, has("nothing"));
    for (operation const& o : layer_operations(c, job, {}).operators) {
      CAPTURE(o.name);
      if (o.flops > 0 && o.name != "attention") {
        CHECK(whole(c, o.name).weight_flops == o.flops);
        CHECK(fitted(c, table, o.name).weight_flops == 0);
      }
    }
  }
}

}  // namespace

}  // namespace adapters_test
