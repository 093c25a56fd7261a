// SPDX-License-Identifier: Apache-2.0
// A scope on hand-made frames: addresses, lifetimes, high-water marks, keys, losses, refusals.

#include "protrain/block/scope.hpp"

#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace scope_test {

namespace {

using protrain::block_error;
using protrain::block_id;
using protrain::dtype;
using protrain::random_key;
using protrain::scope;
using protrain::tensor_view;
using protrain::block::block_entry;
using protrain::block::frame;
using protrain::block::pass;
using protrain::block::saved_table;
using protrain::block::slot;
using protrain::test::refusal;

/// An entry with two parameters, one frozen, and its memory.
struct bench {
  bench() {
    entry.name = "h.7";
    entry.layer = 7;
    entry.parameters = {{"w", {}, {dtype::f32, {2, 3}}, true}, {"f", {}, {dtype::u8, {4}}, false}};
    entry.batch = {{"mask", 1, {dtype::u8, {5}}}};
    entry.input = {dtype::f32, {4}};
  }
  frame make(pass p) {
    return {.entry = &entry,
            .pass = p,
            .x = entry.input.at(x.data()),
            .values = values,
            .gradients = gradients,
            .batch = batch,
            .saved = {saved.data(), saved.size()},
            .scratch = {scratch.data(), scratch.size()},
            .slots = &slots,
            .losses = losses.data(),
            .loss_scale = 0.25F,
            .samples = 2,
            .random = {.seed = 5, .step = 6, .sample = 40, .block = 9},
            .queue = {protrain::queue_id::compute, this}};
  }

  block_entry entry{};
  saved_table slots{};
  alignas(256) std::array<std::byte, 1024> saved{};
  alignas(256) std::array<std::byte, 1024> scratch{};
  alignas(256) std::array<float, 4> x{};
  std::array<float, 6> w{};
  std::array<float, 6> dw{};
  std::array<std::byte, 4> f{};
  std::array<std::byte, 5> mask{};
  std::array<float, 2> losses{};
  std::array<void*, 2> values{w.data(), f.data()};
  std::array<void*, 2> gradients{dw.data(), nullptr};
  std::array<void*, 2> batch{nullptr, mask.data()};
};

std::uint64_t distance(tensor_view const& t, std::byte const* from) {
  return static_cast<std::uint64_t>(t.raw() - from);
}

}  // namespace

TEST_CASE("parameters, batch tensors and facts of the pass") {
  bench b;
  scope s(b.make(pass::forward));
  CHECK(s.value({0}) == tensor_view{b.w.data(), dtype::f32, {2, 3}});
  CHECK(s.value({1}).data == b.f.data());
  CHECK(s.batch("mask") == tensor_view{b.mask.data(), dtype::u8, {5}});
  CHECK(s.batch(protrain::batch_ref{0}).data == b.mask.data());
  CHECK(s.layer() == 7);
  CHECK(s.index() == block_id{9});
  CHECK(s.samples() == 2);
  CHECK(s.loss_scale() == 0.25F);
  CHECK(s.queue().native == &b);
  CHECK(refusal([&] { static_cast<void>(s.batch("masks")); }) ==
        "block h.7: reads batch tensor 'masks', which describe did not declare");
  CHECK(refusal([&] { static_cast<void>(s.value({2})); }) == "no such parameter");
  CHECK(refusal([&] { static_cast<void>(s.gradient({0})); }) ==
        "scope::gradient belongs to backward");
  CHECK(refusal([&] { static_cast<void>(s.saved("q")); }) == "scope::saved belongs to backward");
}

TEST_CASE("gradients of frozen parameters are absent") {
  bench b;
  scope s(b.make(pass::backward));
  CHECK(s.gradient({0}).data == b.dw.data());
  CHECK(s.trainable({0}));
  CHECK_FALSE(static_cast<bool>(s.gradient({1})));
  CHECK_FALSE(s.trainable({1}));
}

TEST_CASE("saves are bumps of whole granules, and are found again where the region went") {
  bench b;
  {
    scope s(b.make(pass::forward));
    CHECK(distance(s.save("q", dtype::f32, {65}), b.saved.data()) == 0);
    CHECK(distance(s.save(slot("e")[0], dtype::u8, {1}), b.saved.data()) == 512);
    CHECK(s.save("none", dtype::u8, {0}).empty());
    CHECK(s.save("x", b.entry.input.at(b.x.data())).data == b.x.data());
    CHECK(distance(s.save(slot("e")[1], dtype::u8, {}), b.saved.data()) == 768);
    CHECK(s.saved_used() == 1024);
  }
  alignas(256) std::array<std::byte, 1024> elsewhere{};
  frame f = b.make(pass::backward);
  f.saved = {elsewhere.data(), elsewhere.size()};
  scope s(f);
  CHECK(distance(s.saved("q"), elsewhere.data()) == 0);
  CHECK(s.saved("q").shape == protrain::extents{65});
  CHECK(distance(s.saved(slot("e")[0]), elsewhere.data()) == 512);
  CHECK(distance(s.saved(slot("e")[1]), elsewhere.data()) == 768);
  CHECK(s.saved("x").data == b.x.data());
  CHECK(refusal([&] { static_cast<void>(s.saved("k")); }) ==
        "block h.7: backward wants 'k', which was not saved");
  CHECK(refusal([&] { static_cast<void>(s.saved(slot("e")[2])); }) ==
        "block h.7: backward wants 'e[2]', which was not saved");
  CHECK(refusal([&] { s.save("late", dtype::u8, {}); }) == "scope::save belongs to forward");
}

TEST_CASE("a name is saved once, x only by blocks that read it") {
  bench b;
  scope s(b.make(pass::forward));
  s.save("q", dtype::u8, {1});
  CHECK(refusal([&] { s.save("q", dtype::u8, {1}); }) == "block h.7: saves 'q' twice");
  tensor_view const other{b.w.data(), dtype::f32, {4}};
  CHECK(refusal([&] { s.save("x", other); }) == "only the block's own x can be saved in place");
  b.entry.reads_input = false;
  CHECK(refusal([&] { s.save("x", b.entry.input.at(b.x.data())); }) ==
        "block h.7: saves x as 'x' but said reads_input(false)");
}

TEST_CASE("a recompute must save what forward saved") {
  bench b;
  auto const forward = [&](pass p, dtype second) {
    scope s(b.make(p));
    s.save("a", dtype::u8, {3});
    s.save("b", second, {3});
  };
  forward(pass::forward, dtype::u8);
  forward(pass::recompute, dtype::u8);
  forward(pass::recompute, dtype::u8);
  CHECK(refusal([&] { forward(pass::recompute, dtype::i32); }) ==
        "block h.7: recompute saves 'b' where forward saved something else; saves depend on "
        "shapes only");
  // What it did not save is not there, although forward did save it.
  CHECK(refusal([&] { static_cast<void>(scope(b.make(pass::backward)).saved("b")); }) != "");
  CHECK(refusal([&] {
          scope s(b.make(pass::recompute));
          s.save("a", dtype::u8, {3});
          s.save("b", dtype::u8, {3});
          s.save("c", dtype::u8, {3});
        }).starts_with("block h.7: recompute saves 'c'"));
  forward(pass::forward, dtype::i32);  // a new micro-batch starts over
  forward(pass::recompute, dtype::i32);
  b.slots.begin();  // an owner that forgets: the recompute is the first it hears
  forward(pass::recompute, dtype::u8);
  CHECK(b.slots.rows().size() == 2);
}

TEST_CASE("scratch lasts as long as its operator") {
  bench b;
  scope s(b.make(pass::forward));
  CHECK(distance(s.scratch(dtype::u8, {10}), b.scratch.data()) == 0);
  {
    auto const outer = s.op("outer");
    CHECK(distance(s.scratch(dtype::u8, {10}), b.scratch.data()) == 256);
    {
      auto const inner = s.op("inner");
      CHECK(distance(s.scratch(dtype::u8, {257}), b.scratch.data()) == 512);
      CHECK(s.scratch_peak() == 1024);
    }
    CHECK(distance(s.scratch(dtype::u8, {10}), b.scratch.data()) == 512);
  }
  CHECK(distance(s.scratch(dtype::u8, {10}), b.scratch.data()) == 256);
  CHECK(s.scratch_peak() == 1024);
  CHECK(s.saved_used() == 0);
}

TEST_CASE("asking for more than planned names block, operator and bytes") {
  bench b;
  scope s(b.make(pass::forward));
  s.scratch(dtype::u8, {768});
  auto const op = s.op("attention");
  std::string const scratch =
      "block h.7: operator 'attention' asks for 257 bytes of scratch memory with 768 in use, but "
      "1024 are planned";
  CHECK(refusal([&] { s.scratch(dtype::u8, {257}); }) == scratch);
  try {
    s.save("big", dtype::f32, {300});
    FAIL("granted");
  } catch (block_error const& e) {
    CHECK(e.block() == "h.7");
    CHECK(e.subject() == "attention");
    CHECK(e.asked() == 1200);
    CHECK(e.planned() == 1024);
  }
  s.save("fits", dtype::f32, {256});
  CHECK(refusal([&] { s.save("more", dtype::u8, {1}); }) != "");
}

TEST_CASE("without an operator the message names the memory") {
  bench b;
  scope s(b.make(pass::forward));
  CHECK(refusal([&] { s.save("big", dtype::u8, {1025}); }) ==
        "block h.7: asks for 1025 bytes of saved memory with 0 in use, but 1024 are planned");
}

TEST_CASE("operators are observed with the scratch beyond what was alive before") {
  bench b;
  std::vector<std::string> heard;
  protrain::block::observer const watch{
      &heard,
      [](void* to, std::string_view name, protrain::device::queue_ref) {
        static_cast<std::vector<std::string>*>(to)->push_back("+" + std::string(name));
      },
      [](void* to, std::string_view name, protrain::device::queue_ref, std::uint64_t n) noexcept {
        static_cast<std::vector<std::string>*>(to)->push_back(std::string(name) + " " +
                                                              std::to_string(n));
      }};
  frame f = b.make(pass::forward);
  f.watch = &watch;
  scope s(f);
  s.scratch(dtype::u8, {1});
  {
    auto const outer = s.op("outer");
    s.scratch(dtype::u8, {1});
    {
      auto const inner = s.op("inner");
      s.scratch(dtype::u8, {512});
    }
    auto const second = s.op("second");
    s.scratch(dtype::u8, {1});
  }
  CHECK(heard == std::vector<std::string>{
                     "+outer", "+inner", "inner 512", "+second", "second 256", "outer 768"});
}

TEST_CASE("losses are added in forward and evaluation, and left alone in a recompute") {
  bench b;
  for (pass const p : {pass::forward, pass::evaluate, pass::recompute}) {
    scope s(b.make(p));
    s.loss(0, 1.0F);
    s.loss(1, 10.0F);
    s.loss(1, 10.0F);
    CHECK(static_cast<bool>(s.losses()) == (p != pass::recompute));
    CHECK(refusal([&] { s.loss(2, 1.0F); }) == "loss of a sample outside the micro-batch");
  }
  CHECK(b.losses == std::array<float, 2>{2.0F, 40.0F});
  scope s(b.make(pass::backward));
  CHECK(refusal([&] { s.loss(0, 1.0F); }) == "scope::loss belongs to forward");
  CHECK_FALSE(static_cast<bool>(s.losses()));
}

TEST_CASE("random keys are those of forward in every pass") {
  bench b;
  random_key const expected{.seed = 5, .step = 6, .sample = 40, .block = 9, .op = 1};
  for (pass const p : {pass::forward, pass::recompute}) {
    scope s(b.make(p));
    CHECK(s.rng().op == 0);
    CHECK(s.rng() == expected);
    CHECK(s.rng(1) == expected);
  }
  scope s(b.make(pass::backward));
  CHECK(s.rng(1) == expected);
  CHECK(refusal([&] { s.rng(); }) == "outside forward, call scope::rng with its number");
}

TEST_CASE("a pass has a mode") {
  bench b;
  CHECK(scope(b.make(pass::forward)).mode() == protrain::block::mode::train);
  CHECK(scope(b.make(pass::backward)).mode() == protrain::block::mode::train);
  CHECK(scope(b.make(pass::recompute)).mode() == protrain::block::mode::recompute);
  CHECK(scope(b.make(pass::evaluate)).mode() == protrain::block::mode::evaluate);
}

TEST_CASE("kernels run where there is memory, with the queue if they want it") {
  bench b;
  int calls = 0;
  scope s(b.make(pass::forward));
  s.run([&] { ++calls; });
  s.op("o").run([&](protrain::device::queue_ref q) { calls += q.native == &b ? 10 : 0; });
  CHECK(calls == 11);
}

TEST_CASE("a dry frame has no memory and no bounds, and counts all the same") {
  bench b;
  for (pass const p : {pass::forward, pass::backward}) {
    frame f = {.entry = &b.entry, .pass = p, .dry = true, .slots = &b.slots};
    f.samples = 2;
    scope s(f);
    CHECK_FALSE(static_cast<bool>(s.value({0})));
    CHECK_FALSE(static_cast<bool>(s.batch("mask")));
    CHECK_FALSE(static_cast<bool>(s.scratch(dtype::u8, {5000})));
    CHECK(s.scratch_peak() == 5120);
    s.run([] { FAIL("a kernel in a dry run"); });
    if (p == pass::forward) {
      s.loss(1, 1.0F);
      CHECK_FALSE(static_cast<bool>(s.save("q", dtype::f32, {1000})));
      CHECK(s.saved_used() == 4096);
    } else {
      CHECK(s.saved("q") == tensor_view{nullptr, dtype::f32, {1000}});
      CHECK_FALSE(static_cast<bool>(s.gradient({0})));
      CHECK(s.trainable({0}));
    }
  }
}

TEST_CASE("frames that cannot be right are refused") {
  bench b;
  frame crooked = b.make(pass::forward);
  crooked.saved.data += 128;
  CHECK(refusal([&] { scope{crooked}; }) == "a region starts at a multiple of address_granule");
  frame empty = b.make(pass::forward);
  empty.values = {};
  CHECK(refusal([&] { static_cast<void>(scope(empty).value({0})); }) ==
        "the frame has too few addresses");
  frame bare = b.make(pass::forward);
  bare.slots = nullptr;
  CHECK(refusal([&] { scope{bare}; }) == "a scope needs a saved_table");
}

}  // namespace scope_test
