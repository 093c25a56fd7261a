// SPDX-License-Identifier: Apache-2.0
// Save levels as a block sees them: what is declared, what a dry pass makes of it, what a rebuild
// finds, and every way to get it wrong.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/block/standalone.hpp"
#include "test/law/block.hpp"
#include "test/unit/block/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace levels_test {

namespace {

using namespace protrain;
using block::dry_pass;
using block::level_need;
using block::pass;
using block::standalone;
using test::refusal;

constexpr std::uint64_t n = 80;
constexpr level_ref cheap{1};
constexpr level_ref deep{2};
constexpr model::job job{.micro_batch = 1, .sequence = 1};

void describe(block_builder& b) {
  b.name("layer");
  b.parameter("w", {n});
  b.input({n});
  b.output({n});
  CHECK(b.level("cheap") == cheap);
  CHECK(b.level("deep", {.flops = 7}) == deep);
}

/// y = w (x + 2 (x + 1)): "one" = x + 1 and "two" = 2 one are dropped, "product" is kept.
void forward(scope& s, tensor_view x, tensor_view y) {
  tensor_view const one = s.save("one", dtype::f32, {n}, dropped_at{deep});
  tensor_view const two = s.save("two", dtype::f32, {n}, dropped_at{cheap});
  tensor_view const sum = s.save("sum", dtype::f32, {n});
  s.run([&] {
    for (std::uint64_t i = 0; i < n; ++i) {
      one.as<float>()[i] = x.as<float const>()[i] + 1;
      two.as<float>()[i] = 2 * one.as<float>()[i];
      sum.as<float>()[i] = x.as<float const>()[i] + two.as<float>()[i];
      y.as<float>()[i] = s.value({0}).as<float const>()[i] * sum.as<float>()[i];
    }
  });
}

void rebuild(scope& s, tensor_view x) {
  CHECK(s.mode() == block::mode::recompute);
  bool const all = s.dropped("one");
  tensor_view const one = all ? s.rebuild("one") : s.saved("one");
  tensor_view const two = s.rebuild("two");
  tensor_view const room = s.scratch(dtype::f32, {all ? 2 * n : n});
  s.run([&] {
    for (std::uint64_t i = 0; i < n; ++i) {
      if (all) {
        one.as<float>()[i] = x.as<float const>()[i] + 1;
      }
      room.as<float>()[i] = one.as<float>()[i];
      two.as<float>()[i] = 2 * room.as<float>()[i];
    }
  });
}

void backward(scope& s, tensor_view, tensor_view dy, tensor_view dx) {
  tensor_view const one = s.saved("one");
  tensor_view const two = s.saved("two");
  tensor_view const sum = s.saved("sum");
  s.run([&] {
    for (std::uint64_t i = 0; i < n; ++i) {
      bool const right = two.as<float const>()[i] == 2 * one.as<float const>()[i];
      s.gradient({0}).as<float>()[i] = dy.as<float const>()[i] * sum.as<float const>()[i];
      dx.as<float>()[i] =
          right ? 3 * dy.as<float const>()[i] * s.value({0}).as<float const>()[i] : 0.0F;
    }
  });
}

auto layer() { return make_block(describe, forward, backward, rebuild); }
auto first() {
  return test::described([](block_builder& b) {
    b.output({n});
    b.reads_input(false);
  });
}
auto last() {
  return test::described([](block_builder& b) {
    b.input({n});
    b.reads_input(false);
  });
}

/// What planning refuses such a middle block with.
template <class Block>
std::string dry_refusal(Block middle) {
  stack const model{first(), std::move(middle), last()};
  return refusal([&] {
    auto const t = model.entries(job);
    (void)dry_pass(t.blocks[1], job, block_id{1});
  });
}
template <class Rebuild>
std::string rebuild_refusal(Rebuild other) {
  return dry_refusal(make_block(describe, forward, backward, other));
}

}  // namespace

TEST_CASE("each level has its bytes: what stays, what is dropped, scratch of the rebuild") {
  stack const model{first(), repeat(2, layer()), last()};
  auto const t = model.entries(job);
  auto const need = dry_pass(t.blocks[1], job, block_id{1});
  CHECK(need.saved == 3 * 512);
  CHECK(need.slots == 3);
  CHECK(need.levels == std::vector<level_need>{{.saved = 1024, .dropped = 512, .scratch = 512},
                                               {.saved = 512, .dropped = 1024, .scratch = 768}});
  REQUIRE(t.blocks[2].levels.size() == 2);
  CHECK(t.blocks[2].levels[0].name == "cheap");
  CHECK(t.blocks[2].levels[0].reads_input);
  CHECK_FALSE(t.blocks[2].levels[0].flops.has_value());
  CHECK(t.blocks[2].levels[1].flops == 7U);
  CHECK(t.blocks[1].shape == t.blocks[2].shape);
  CHECK(t.blocks[0].levels.empty());
  CHECK((t.blocks[0].rebuild == nullptr));
}

TEST_CASE("a rebuild makes what was dropped again, and backward sees no difference") {
  law::keeps_block_law(layer(), job);
  stack const model{first(), layer(), last()};
  auto const t = model.entries(job);
  constexpr block_id middle{1};
  std::vector<float> want;
  for (std::uint32_t level = 0; level <= 2; ++level) {
    CAPTURE(level);
    standalone owner(t, job, {.fill = 0xFF});
    for (std::uint64_t i = 0; i < n; ++i) {
      owner.output(block_id{0}).as<float>()[i] = static_cast<float>(i);
      owner.value(parameter_id{0}).as<float>()[i] = 0.5F;
      owner.output_gradient(middle).as<float>()[i] = 1;
    }
    owner.forward(middle, pass::forward, level);
    auto const rows = owner.saved_rows(middle);
    REQUIRE(rows.size() == 3);
    CHECK(rows[0].dropped == (level == 2));
    CHECK(rows[1].dropped == (level >= 1));
    CHECK_FALSE(rows[2].dropped);
    CHECK(rows[2].offset == 512 * (2 - level));
    if (level > 0) {
      CHECK(refusal([&] { owner.backward(middle); }).find("not rebuilt yet") != std::string::npos);
      owner.rebuild(middle);
    }
    owner.backward(middle);
    CHECK(owner.intact());
    auto const dx = owner.output_gradient(block_id{0}).elements_as<float>();
    std::vector<float> const got(dx.begin(), dx.end());
    CHECK(got == std::vector<float>(n, 1.5F));
    CHECK(owner.contribution(middle, {0}).as<float>()[7] == 23);
  }
}

TEST_CASE("functions take the layer, and layers may differ in nothing but numbers") {
  std::vector<std::uint32_t> layers;
  stack const model{first(),
                    repeat(2,
                           make_block(describe,
                                      forward,
                                      backward,
                                      [&](std::uint32_t layer, scope& s, tensor_view x) {
                                        layers.push_back(layer);
                                        rebuild(s, x);
                                      })),
                    last()};
  auto const t = model.entries(job);
  (void)dry_pass(t.blocks[2], job, block_id{2});
  CHECK(layers == std::vector<std::uint32_t>{1, 1});
  stack const other{first(),
                    repeat(2,
                           make_block(
                               [](block_builder& b) {
                                 b.input({n});
                                 b.output({n});
                                 b.level(b.layer() == 0 ? "a" : "b");
                               },
                               [](scope&, tensor_view, tensor_view) {},
                               backward,
                               rebuild)),
                    last()};
  CHECK(refusal([&] { other.entries(job); }).find("declares other names") != std::string::npos);
}

TEST_CASE("levels without a rebuild are refused, and so are too many") {
  CHECK(dry_refusal(make_block(describe, forward, backward)) ==
        "block layer: declares save level 'cheap' but can't make again what it drops; write void "
        "rebuild(scope&, tensor_view x) const");
  CHECK(dry_refusal(make_block(
            [](block_builder& b) {
              describe(b);
              b.level("c");
              b.level("d");
              b.level("e");
            },
            forward,
            backward,
            rebuild)) == "a block has at most four levels");
}

TEST_CASE("a tensor is dropped at a level that was declared") {
  auto const at = [](level_ref level) {
    return dry_refusal(make_block(
        describe,
        [level](scope& s, tensor_view, tensor_view) {
          s.save("a", dtype::u8, {1}, dropped_at{level});
        },
        [](scope&, tensor_view, tensor_view, tensor_view) {},
        [](scope& s, tensor_view) {
          if (s.dropped("a")) {
            s.rebuild("a");
          }
        }));
  };
  CHECK(at(cheap).empty());
  CHECK(at(deep).empty());
  CHECK(at(level_ref{3}) ==
        "block layer: saves 'a' dropped at level 3, but describe declared 2 levels");
  CHECK(at({}) == "block layer: saves 'a' dropped at level 0, but describe declared 2 levels");
}

TEST_CASE("planning finds what a rebuild leaves out or mistakes") {
  CHECK(rebuild_refusal(rebuild).empty());
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.rebuild("two"); }) ==
        "block layer: the rebuild of level 'deep' leaves out 'one', which that level drops");
  CHECK(rebuild_refusal([](scope&, tensor_view) {}) ==
        "block layer: the rebuild of level 'cheap' leaves out 'two', which that level drops");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.rebuild("sum"); }) ==
        "block layer: rebuilds 'sum', which this level keeps; ask scope::dropped first");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.rebuild("three"); }) ==
        "block layer: rebuilds 'three', which was not saved");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { (void)s.saved("two"); }) ==
        "block layer: wants 'two', which was dropped and is not rebuilt yet");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.save("two", dtype::f32, {n}); }) ==
        "scope::save belongs to forward");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.loss(0, 1); }) ==
        "scope::loss belongs to forward");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.gradient({0}); }) ==
        "scope::gradient belongs to backward");
  CHECK(rebuild_refusal([](scope& s, tensor_view) { s.rng(); }) ==
        "outside forward, call scope::rng with its number");
  CHECK(dry_refusal(make_block(
            describe,
            [](scope& s, tensor_view, tensor_view) { s.rebuild("two"); },
            backward,
            rebuild)) == "what was dropped is a rebuild's affair");
}

TEST_CASE("x is there for a rebuild that said so, and for no other") {
  auto const layer_of = [](bool reads, bool saves) {
    return make_block(
        [reads](block_builder& b) {
          b.name("layer");
          b.input({n});
          b.output({n});
          b.level("only", {.reads_input = reads});
        },
        [](scope& s, tensor_view x, tensor_view y) {
          s.save("x", x);
          tensor_view const a = s.save("a", dtype::f32, {n}, dropped_at{level_ref{1}});
          s.run([&] {
            for (std::uint64_t i = 0; i < n; ++i) {
              y.as<float>()[i] = a.as<float>()[i] = 2;
            }
          });
        },
        [](scope& s, tensor_view, tensor_view, tensor_view) { (void)s.saved("a"); },
        [reads, saves](scope& s, tensor_view x) {
          tensor_view const a = s.rebuild("a");
          if (saves) {
            (void)s.saved("x");
          }
          s.run([&] {
            CHECK((x.data != nullptr) == reads);
            for (std::uint64_t i = 0; i < n; ++i) {
              a.as<float>()[i] = 2;
            }
          });
        });
  };
  CHECK(dry_refusal(layer_of(true, true)).empty());
  CHECK(dry_refusal(layer_of(false, false)).empty());
  CHECK(dry_refusal(layer_of(false, true)) ==
        "block layer: wants x, which the rebuild of this level said it doesn't read");
  for (bool const reads : {true, false}) {
    stack const model{first(), layer_of(reads, reads), last()};
    auto const t = model.entries(job);
    standalone owner(t, job);
    owner.forward(block_id{1}, pass::forward, 1);
    owner.rebuild(block_id{1});
  }
}

}  // namespace levels_test
