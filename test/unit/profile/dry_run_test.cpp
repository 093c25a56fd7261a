// SPDX-License-Identifier: Apache-2.0
// A model's trace without memory: shapes, bytes, batch, operators, and one-constant times.

#include "protrain/profile/dry_run.hpp"

#include "test/support/mlp.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace dry_run_test {

namespace {

using protrain::bfloat16;
using protrain::block_builder;
using protrain::block_id;
using protrain::bytes;
using protrain::dtype;
using protrain::picoseconds;
using protrain::scope;
using protrain::shape_id;
using protrain::stack;
using protrain::tensor_view;
using protrain::model::job;
using protrain::profile::dry_run;
using protrain::test::make_mlp;
namespace trace = protrain::trace;

constexpr job bf16{.micro_batch = 4,
                   .sequence = 2,
                   .type = dtype::bf16,
                   .state = protrain::model::state_format::split_master};

}  // namespace

TEST_CASE("the trace of a network is what its blocks ask for") {
  trace::trace const t =
      dry_run(make_mlp<bfloat16>({.features = 6, .hidden = 10, .layers = 3}), bf16);
  CHECK(t.from == trace::source::dry_run);
  CHECK(t.job == bf16);
  CHECK(t.parameters.size() == 9);
  CHECK(t.blocks ==
        std::vector<shape_id>{shape_id{0}, shape_id{1}, shape_id{1}, shape_id{1}, shape_id{2}});
  REQUIRE(t.shapes.size() == 3);
  // 8 rows: features and targets are fp32[8, 6] = 192 bytes, a granule each.
  CHECK(t.batch == bytes{512});
  trace::block_shape const& layer = t.shapes[1];
  CHECK(layer.name == "h");
  CHECK(layer.input == bytes{160});
  CHECK(layer.output == bytes{160});
  CHECK(layer.saved == bytes{512});  // fp32[8, 10]; x costs nothing
  CHECK(layer.scratch_forward == bytes{0});
  CHECK(layer.scratch_backward == bytes{1024});
  CHECK(layer.reads_input);
  REQUIRE(layer.operators.size() == 2);
  CHECK(layer.operators[0].name == "linear");
  CHECK(layer.operators[0].scratch_peak == bytes{512});
  CHECK(layer.operators[1].name == "activation");
  CHECK(layer.forward == picoseconds{0});
  CHECK(t.shapes[0].input == bytes{0});
  CHECK_FALSE(t.shapes[0].reads_input);
  CHECK(t.shapes[2].output == bytes{0});
  CHECK(t.shapes[2].saved == bytes{256});
}

TEST_CASE("tied weights are one parameter with two uses") {
  trace::trace const t = dry_run(make_mlp<bfloat16>({.tied = true}), bf16);
  CHECK(t.parameters.size() == 8);
  CHECK(t.parameters[0].uses == std::vector<block_id>{block_id{0}, block_id{4}});
}

TEST_CASE("with a machine, forward is flops at its rate and backward twice that") {
  protrain::hw::machine const machine{.compute_fp32 = {1'000'000}, .compute_half = {2'000'000}};
  auto const model = make_mlp<bfloat16>({.hidden = 10, .layers = 1});
  trace::trace const half = dry_run(model, bf16, machine);
  CHECK(half.from == trace::source::dry_run);
  // 2 x 10 x 10 elements x 8 tokens = 1600 operations at 2 per microsecond.
  CHECK(half.shapes[1].forward == picoseconds{800'000'000});
  CHECK(half.shapes[1].backward == picoseconds{1'600'000'000});
  job const fp32{.micro_batch = 4, .sequence = 2};
  trace::trace const full = dry_run(make_mlp<float>({.hidden = 10, .layers = 1}), fp32, machine);
  CHECK(full.shapes[1].forward == picoseconds{1'600'000'000});
  CHECK(trace::fingerprint(half) == trace::fingerprint(dry_run(model, bf16)));
}

TEST_CASE("a block's own count of operations wins") {
  stack const model{protrain::make_block(
      [](block_builder& b) {
        b.parameter("w", {100, 100});
        b.flops(5);
      },
      [](scope&, tensor_view, tensor_view) {},
      [](scope&, tensor_view, tensor_view, tensor_view) {})};
  trace::trace const t = dry_run(model, bf16, {.compute_half = {1}});
  CHECK(t.shapes[0].forward == picoseconds{5'000'000'000'000});
}

TEST_CASE("a rebuild takes its operations or its bytes, and all of a forward if nobody said") {
  auto const end = [](bool first) {
    return protrain::make_block([first](block_builder& b) { first ? b.output({8}) : b.input({8}); },
                                [](scope&, tensor_view, tensor_view) {},
                                [](scope&, tensor_view, tensor_view, tensor_view) {});
  };
  using protrain::dropped_at;
  using protrain::level_ref;
  auto const layer = protrain::make_block(
      [](block_builder& b) {
        b.input({8});
        b.output({8});
        b.flops(1000);
        b.level("bytes", {.reads_input = false, .flops = 0});
        b.level("operations", {.flops = 600});
        b.level("silent");
      },
      [](scope& s, tensor_view, tensor_view) {
        s.save("a", dtype::u8, {256}, dropped_at{level_ref{1}});
        s.save("b", dtype::u8, {512}, dropped_at{level_ref{2}});
        s.save("c", dtype::u8, {768}, dropped_at{level_ref{3}});
      },
      [](scope&, tensor_view, tensor_view, tensor_view) {},
      [](scope& s, tensor_view) {
        s.scratch(dtype::u8, {300});
        s.rebuild("a");
        if (s.dropped("b")) {
          s.rebuild("b");
        }
        if (s.dropped("c")) {
          s.rebuild("c");
        }
      });
  stack const model{end(true), layer, end(false)};
  trace::trace const t = dry_run(
      model, bf16, {.device_bandwidth = {1'000'000'000'000}, .compute_half = {1'000'000'000'000}});
  trace::block_shape const& s = t.shapes[1];
  CHECK(s.forward == picoseconds{1000});
  REQUIRE(s.levels.size() == 3);
  CHECK(
      s.levels[0] ==
      trace::save_level{
          .name = "bytes", .saved = {1280}, .rebuilt = {256}, .scratch = {512}, .rebuild = {512}});
  CHECK(s.levels[1].rebuild == picoseconds{1536});  // 2 x 768 bytes take longer than 600 operations
  CHECK(s.levels[1].reads_input);
  CHECK(s.levels[2].saved == bytes{0});
  CHECK(s.levels[2].rebuild == picoseconds{3072});
  trace::trace const slow = dry_run(model, bf16, {.compute_half = {1'000'000'000'000}});
  CHECK(slow.shapes[1].levels[0].rebuild == picoseconds{0});
  CHECK(slow.shapes[1].levels[1].rebuild == picoseconds{600});
  CHECK(slow.shapes[1].levels[2].rebuild == picoseconds{1000});
  trace::trace const timeless = dry_run(model, bf16);
  CHECK(timeless.shapes[1].levels[2].rebuild == picoseconds{0});
  CHECK(trace::fingerprint(timeless) == trace::fingerprint(t));
}

TEST_CASE(
    "layers that save other amounts are other shapes, though they describe themselves alike") {
  auto const end = [](bool first) {
    return protrain::make_block([first](block_builder& b) { first ? b.output({8}) : b.input({8}); },
                                [](scope&, tensor_view, tensor_view) {},
                                [](scope&, tensor_view, tensor_view, tensor_view) {});
  };
  auto const layer = protrain::make_block(
      [](block_builder& b) {
        b.input({8});
        b.output({8});
      },
      [](scope& s, tensor_view, tensor_view) {
        s.save("window", dtype::u8, {s.layer() % 2 == 0 ? 256 : 1024});
      },
      [](scope&, tensor_view, tensor_view, tensor_view) {});
  trace::trace const t = dry_run(stack{end(true), protrain::repeat(4, layer), end(false)}, bf16);
  CHECK(t.shapes.size() == 4);
  CHECK(t.blocks[1] == t.blocks[3]);
  CHECK(t.blocks[2] == t.blocks[4]);
  CHECK(t.shape(block_id{1}).saved == bytes{256});
  CHECK(t.shape(block_id{2}).saved == bytes{1024});
}

TEST_CASE("a repeat may be empty") {
  trace::trace const t = dry_run(make_mlp<bfloat16>({.layers = 0}), bf16);
  CHECK(t.blocks == std::vector<shape_id>{shape_id{0}, shape_id{1}});
}

}  // namespace dry_run_test
