// SPDX-License-Identifier: Apache-2.0
// Bytes without memory: what a block asks for in each pass, and blocks that ask inconsistently.

#include "protrain/block/dry_pass.hpp"

#include "protrain/block/stack.hpp"
#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace dry_pass_test {

namespace {

using protrain::block_builder;
using protrain::block_id;
using protrain::dtype;
using protrain::make_block;
using protrain::scope;
using protrain::stack;
using protrain::tensor_view;
using protrain::block::dry_pass;
using protrain::block::memory_need;
using protrain::block::mode;
using protrain::test::refusal;

void nothing(scope&, tensor_view, tensor_view, tensor_view) {}

/// The need of a block with one parameter and these passes.
template <class Forward, class Backward>
memory_need need_of(Forward run, Backward undo) {
  stack const model{make_block(
      [](block_builder& b) {
        b.name("lone");
        b.parameter("w", {4, 4});
        b.batch("tokens", dtype::i32, {8});
      },
      run,
      undo)};
  protrain::model::job const job{.micro_batch = 2, .sequence = 4, .seed = 3};
  auto const t = model.entries(job);
  return dry_pass(t.blocks[0], job, block_id{0});
}

}  // namespace

TEST_CASE("every tensor counts in granules, saves sum up and scratch peaks") {
  memory_need const need = need_of(
      [](scope& s, tensor_view, tensor_view) {
        s.save("a", dtype::f32, {65});
        s.save("b", dtype::u8, {0});
        s.save("c", dtype::u8, {1});
        auto const op = s.op("product");
        s.scratch(dtype::u8, {300});
      },
      [](scope& s, tensor_view, tensor_view, tensor_view) {
        CHECK(s.saved("a").elements() == 65);
        CHECK(s.gradient({0}).elements() == 16);
        CHECK(s.value({0}).elements() == 16);
        CHECK(s.batch("tokens").elements() == 8);
        for (int i = 0; i < 3; ++i) {
          auto const op = s.op("product");
          s.scratch(dtype::u8, {600});
        }
        auto const op = s.op("bias");
        s.scratch(dtype::u8, {1});
      });
  CHECK(need.saved == 768);
  CHECK(need.slots == 3);
  CHECK(need.scratch_forward == 512);
  CHECK(need.scratch_backward == 768);
  REQUIRE(need.operators.size() == 2);
  CHECK(need.operators[0] == protrain::block::operator_need{"product", 768, 0, 768});
  CHECK(need.operators[1] == protrain::block::operator_need{"bias", 256, 0, 0});
}

TEST_CASE(
    "what an operator saves is its own, and what is taken between operators comes before one") {
  memory_need const need = need_of(
      [](scope& s, tensor_view, tensor_view) {
        s.scratch(dtype::u8, {1});
        {
          auto const outer = s.op("outer");
          s.save("a", dtype::u8, {1});
          {
            auto const inner = s.op("inner");
            s.save("b", dtype::u8, {257});
            s.scratch(dtype::u8, {1});
          }
          s.save("c", dtype::u8, {1});
        }
        s.save("d", dtype::u8, {1000});
        s.scratch(dtype::u8, {1});
        auto const inner = s.op("inner");
        s.save("e", dtype::u8, {1});
      },
      [](scope& s, tensor_view, tensor_view, tensor_view) {
        {
          auto const outer = s.op("outer");
        }
        s.scratch(dtype::u8, {1});
        auto const outer = s.op("outer");
      });
  CHECK(need.operators == std::vector<protrain::block::operator_need>{
                              {"outer", 256, 512, 256 + 256}, {"inner", 256, 768, 1024 + 256}});
}

TEST_CASE("a block sees the job's whole micro-batch, and no kernel runs") {
  need_of(
      [](scope& s, tensor_view x, tensor_view y) {
        CHECK(s.samples() == 2);
        CHECK(s.rng(1) == protrain::random_key{.seed = 3, .block = 0, .op = 1});
        CHECK(x.empty());
        CHECK(y.empty());
        s.run([] { FAIL("ran"); });
      },
      nothing);
}

TEST_CASE("the largest of forward, recompute and evaluation counts") {
  for (mode const greedy : {mode::train, mode::recompute, mode::evaluate}) {
    memory_need const need = need_of(
        [greedy](scope& s, tensor_view, tensor_view) {
          s.scratch(dtype::u8, {s.mode() == greedy ? 2048 : 1});
        },
        nothing);
    CHECK(need.scratch_forward == 2048);
  }
  CHECK(need_of(
            [](scope& s, tensor_view, tensor_view) {
              s.save("a", dtype::u8, {s.mode() == mode::evaluate ? 999 : 1});
            },
            nothing)
            .saved == 1024);
}

TEST_CASE("a recompute that saves something else is refused") {
  auto const saves = [](int forward, int again) {
    return [=](scope& s, tensor_view, tensor_view) {
      int const n = s.mode() == mode::recompute ? again : forward;
      for (int i = 0; i < n; ++i) {
        s.save(protrain::block::slot("t")[static_cast<std::uint32_t>(i)], dtype::u8, {1});
      }
    };
  };
  CHECK(refusal([&] { need_of(saves(2, 2), nothing); }) == "");
  CHECK(refusal([&] { need_of(saves(2, 1), nothing); }) ==
        "block lone: recompute saves fewer tensors than forward");
  CHECK(refusal([&] {
          need_of(saves(2, 3), nothing);
        }).starts_with("block lone: recompute saves 't[2]' where forward"));
}

TEST_CASE("a backward that wants what was not saved is found without a device") {
  CHECK(refusal([] {
          need_of([](scope&, tensor_view, tensor_view) {},
                  [](scope& s, tensor_view, tensor_view, tensor_view) {
                    static_cast<void>(s.saved("probabilities"));
                  });
        }) == "block lone: backward wants 'probabilities', which was not saved");
}

}  // namespace dry_pass_test
