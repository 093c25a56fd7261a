// SPDX-License-Identifier: Apache-2.0
// From blocks to a table: names, ties, uses, shapes, pins, and each refusal's line.

#include "protrain/block/stack.hpp"

#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace stack_test {

namespace {

using protrain::block_builder;
using protrain::block_id;
using protrain::dtype;
using protrain::make_block;
using protrain::parameter_ref;
using protrain::repeat;
using protrain::scope;
using protrain::stack;
using protrain::tensor_view;
using protrain::block::table;
using protrain::model::job;
using protrain::test::described;
using protrain::test::refusal;

struct pinned_layer {
  void describe(block_builder& b) {
    weight = b.parameter("w", {4, 4});
    bias = b.parameter("b", {4}, {.decay = false, .type = dtype::f32});
    mask = b.batch("mask", dtype::u8, {2});
    b.input({2, 4});
    b.output({8});
    b.flops(99);
  }
  void forward(scope&, tensor_view, tensor_view) const {}
  void backward(scope&, tensor_view, tensor_view, tensor_view) const {}
  parameter_ref weight;
  parameter_ref bias;
  protrain::batch_ref mask;
};

}  // namespace
}  // namespace stack_test

template <>
struct protrain::activation::strategy_of<stack_test::pinned_layer> {
  static constexpr pin value = pin::checkpoint;
};

namespace stack_test {
namespace {

static_assert(protrain::block_type<pinned_layer>);
static_assert(!protrain::block_type<int>);

auto first_block() {
  return described([](block_builder& b) {
    b.name("embedding");
    b.parameter("wte", {16, 4});
    b.parameter("frozen", {0}, {.trainable = false});
    b.batch("tokens", dtype::i32, {2});
    b.output({2, 4});
  });
}

auto last_block() {
  return described([](block_builder& b) {
    b.parameter("out", {16, 4}, {.trainable = false, .decay = false, .tied = "wte"});
    b.batch("targets", dtype::i32, {2});
    b.batch("tokens", dtype::i32, {2});
    b.input({2, 4});
    b.reads_input(false);
  });
}

/// What a middle block of this description is refused with, between the two above.
template <class Describe>
std::string middle_refusal(Describe describe) {
  stack const model{first_block(), described(describe), last_block()};
  return refusal([&] { model.entries({.type = dtype::bf16}); });
}

void pass_through(block_builder& b) {
  b.name("middle");
  b.input({2, 4});
  b.output({2, 4});
}

}  // namespace

TEST_CASE("parameters come in order of first use, tied ones once") {
  stack const model{first_block(), repeat(2, pinned_layer{}, "h"), last_block()};
  table const t = model.entries({.type = dtype::bf16});
  std::vector<std::string_view> names;
  for (auto const& p : t.parameters) {
    names.push_back(p.name.view());
  }
  CHECK(names ==
        std::vector<std::string_view>{"wte", "frozen", "h.0.w", "h.0.b", "h.1.w", "h.1.b"});
  CHECK(t.parameters[0].uses == std::vector<block_id>{block_id{0}, block_id{3}});
  CHECK(t.parameters[0].trainable);
  CHECK(t.parameters[0].decay);
  CHECK(t.parameters[0].type == dtype::bf16);
  CHECK(t.parameters[0].shape == std::vector<std::uint64_t>{16, 4});
  CHECK_FALSE(t.parameters[1].trainable);
  CHECK(elements(t.parameters[1]) == 0);
  CHECK(t.parameters[3].type == dtype::f32);
  CHECK_FALSE(t.parameters[3].decay);
  CHECK(t.blocks[3].parameters[0].id.value == 0);
  CHECK(t.blocks[3].parameters[0].name == "out");
  CHECK(t.blocks[3].parameters[0].trainable);  // as its first use says
}

TEST_CASE("entries carry what blocks said") {
  stack const model{first_block(), repeat(2, pinned_layer{}, "h"), last_block()};
  table const t = model.entries({.type = dtype::bf16});
  REQUIRE(t.blocks.size() == 4);
  CHECK(t.blocks[0].name == "embedding");
  CHECK(t.blocks[2].name == "h.1");
  CHECK(t.blocks[2].shape_name == "h");
  CHECK(t.blocks[2].layer == 1);
  CHECK(t.blocks[3].name == "block 3");
  CHECK(t.blocks[1].shape == t.blocks[2].shape);
  CHECK(t.blocks[0].shape != t.blocks[1].shape);
  CHECK(t.blocks[1].object == t.blocks[2].object);
  CHECK(t.blocks[1].pinned == protrain::trace::pin::checkpoint);
  CHECK(t.blocks[0].pinned == protrain::trace::pin::free);
  CHECK(t.blocks[1].flops == 99);
  CHECK_FALSE(t.blocks[0].flops.has_value());
  CHECK(t.blocks[0].input.bytes() == 0);
  CHECK(t.blocks[1].input.bytes() == 16);
  CHECK(t.blocks[3].output.bytes() == 0);
  CHECK(t.blocks[1].reads_input);
  CHECK_FALSE(t.blocks[3].reads_input);
}

TEST_CASE("batch tensors of one name are one") {
  stack const model{first_block(), repeat(2, pinned_layer{}, "h"), last_block()};
  table const t = model.entries({});
  REQUIRE(t.batch.size() == 3);
  CHECK(t.batch[0].name == "tokens");
  CHECK(t.batch[1].name == "mask");
  CHECK(t.batch[1].facts.bytes() == 2);
  CHECK(t.blocks[3].batch[0].index == 2);
  CHECK(t.blocks[3].batch[1].index == 0);
}

TEST_CASE("layers of other descriptions are other shapes") {
  auto const layer = described([](block_builder& b) {
    pass_through(b);
    b.parameter("w", {4}, {.trainable = b.layer() >= 2});
  });
  stack const model{first_block(), repeat(4, layer), repeat(2, layer, "g"), last_block()};
  table const t = model.entries({});
  CHECK(t.blocks[1].shape == t.blocks[2].shape);
  CHECK(t.blocks[2].shape != t.blocks[3].shape);
  CHECK(t.blocks[3].shape == t.blocks[4].shape);
  CHECK(t.blocks[5].shape == t.blocks[6].shape);
  CHECK(t.blocks[5].shape != t.blocks[2].shape);  // another object
}

TEST_CASE("a moved stack keeps its blocks where they are, and describes itself again") {
  stack model{first_block(), repeat(1, pinned_layer{}), last_block()};
  table const before = model.entries({});
  stack const moved = std::move(model);
  table const after = moved.entries({});
  CHECK(before.blocks[1].object == after.blocks[1].object);
  CHECK(before.parameters == after.parameters);
}

TEST_CASE("one block can be a model, and none") {
  stack const one{described([](block_builder& b) { b.parameter("w", {3}); })};
  CHECK(one.entries({}).blocks.size() == 1);
  stack const none{repeat(0, pinned_layer{})};
  CHECK(none.entries({}).blocks.empty());
}

TEST_CASE("weights may be shared by all layers of a repeat") {
  auto const shared = described([](block_builder& b) {
    pass_through(b);
    b.parameter("w", {4}, {.tied = b.layer() == 0 ? "" : "h.0.w"});
  });
  stack const model{first_block(), repeat(3, shared), last_block()};
  table const t = model.entries({});
  CHECK(t.parameters[2].uses == std::vector<block_id>{block_id{1}, block_id{2}, block_id{3}});
  CHECK(t.blocks[1].shape == t.blocks[3].shape);
}

TEST_CASE("refusals name block and tensor") {
  CHECK(middle_refusal(pass_through) == "");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.parameter("wte", {4});
        }) ==
        "block middle: parameter 'wte' exists already; names are unique over the whole model "
        "(give repeats other prefixes)");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.parameter("w", {4}, {.tied = "wtf"});
        }) == "block middle: parameter 'w' is tied to 'wtf', which no earlier block declares");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.parameter("w", {4, 16}, {.tied = "wte"});
        }) == "block middle: parameter 'w' is bf16[4, 16] but tied to 'wte', which is bf16[16, 4]");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.parameter("w", {16, 4}, {.tied = "wte", .type = dtype::f32});
        }) == "block middle: parameter 'w' is fp32[16, 4] but tied to 'wte', which is bf16[16, 4]");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.parameter("w", {16, 4}, {.tied = "wte"});
          b.parameter("v", {16, 4}, {.tied = "wte"});
        }) ==
        "block middle: parameter 'v' is tied to 'wte', which this block uses already; use that "
        "handle");
  CHECK(middle_refusal([](block_builder& b) {
          pass_through(b);
          b.batch("tokens", dtype::i32, {3});
        }) ==
        "block middle: batch tensor 'tokens' is int32[3] here and int32[2] in an earlier block");
}

TEST_CASE("neighbours must agree") {
  CHECK(middle_refusal([](block_builder& b) {
          b.name("middle");
          b.input({2, 5});
          b.output({2, 4});
        }) == "block middle: input is bf16[2, 5] but the output of block embedding is bf16[2, 4]");
  CHECK(middle_refusal([](block_builder& b) {
          b.name("middle");
          b.input({2, 2}, dtype::f32);
          b.output({2, 4});
        }) == "block middle: input is fp32[2, 2] but the output of block embedding is bf16[2, 4]");
  CHECK(middle_refusal([](block_builder& b) {
          b.name("middle");
          b.output({2, 4});
        }) == "block middle: has no input but is not the first block");
  CHECK(middle_refusal([](block_builder& b) {
          b.name("middle");
          b.input({2, 4});
        }) == "block middle: has no output but is not the last block");
  stack const no_first{described(pass_through), last_block()};
  CHECK(refusal([&] { no_first.entries({}); }) ==
        "block middle: is the first block and must not have an input");
  stack const no_last{first_block(), described(pass_through)};
  CHECK(refusal([&] { no_last.entries({}); }) ==
        "block middle: is the last block and must not have an output");
}

TEST_CASE("layers that share handles declare the same names") {
  stack const model{first_block(),
                    repeat(2, described([](block_builder& b) {
                             pass_through(b);
                             b.parameter(b.layer() == 0 ? "a" : "b", {1});
                           })),
                    last_block()};
  CHECK(refusal([&] { model.entries({}); }) ==
        "block h.1: declares other names than layer 0; the handles of a repeated block are "
        "shared");
  CHECK(refusal([] { repeat(-1, pinned_layer{}); }) == "a repeat has 0 to 2^32 - 1 layers");
}

}  // namespace stack_test
