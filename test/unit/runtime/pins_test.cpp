// SPDX-License-Identifier: Apache-2.0
// A block type whose strategy is pinned keeps it from the trace to the device: every assignment
// policy, the search, the programs, the bits.

#include "protrain/activation/assignment.hpp"
#include "protrain/activation/strategy.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/profile/dry_run.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace pins_test {

namespace {

using namespace protrain;
using activation::pin;
using activation::strategy;

constexpr test::mlp_config config{};

/// A layer whose type says what happens to it.
template <pin>
struct layer_of : test::mlp_layer<float> {
  layer_of() : test::mlp_layer<float>(config) {}
};

/// The same layer as three functions: its type has no name.
auto lambdas() {
  auto const layer = std::make_shared<test::mlp_layer<float>>(config);
  return make_block([layer](block_builder& b) { layer->describe(b); },
                    [layer](scope& s, tensor_view x, tensor_view y) { layer->forward(s, x, y); },
                    [layer](scope& s, tensor_view x, tensor_view dy, tensor_view dx) {
                      layer->backward(s, x, dy, dx);
                    });
}

}  // namespace

}  // namespace pins_test

template <protrain::activation::pin Pin>
struct protrain::activation::strategy_of<pins_test::layer_of<Pin>> {
  static constexpr pin value = Pin;
};

namespace pins_test {

namespace {

/// 0 input, 1 and 2 free, 3 kept, 4 checkpointed, 5 swapped, 6 free lambdas, 7 checkpointed ones,
/// 8 swapped ones, 9 head.
auto make_model() {
  return stack{test::mlp_input<float>(config),
               repeat(2, test::mlp_layer<float>(config), "free"),
               repeat(1, layer_of<pin::keep>{}, "keep"),
               repeat(1, layer_of<pin::checkpoint>{}, "checkpoint"),
               repeat(1, layer_of<pin::swap>{}, "swap"),
               repeat(1, lambdas(), "free_lambdas"),
               repeat(1, pinned_to<pin::checkpoint>(lambdas()), "checkpoint_lambdas"),
               repeat(1, pinned_to<pin::swap>(lambdas()), "swap_lambdas"),
               test::mlp_head<float>(config)};
}

constexpr model::job job{
    .micro_batch = 2, .sequence = 4, .accumulate = 2, .seed = 4, .dropout = 0.1F};
std::vector<pin> const pins{pin::free,
                            pin::free,
                            pin::free,
                            pin::keep,
                            pin::checkpoint,
                            pin::swap,
                            pin::free,
                            pin::checkpoint,
                            pin::swap,
                            pin::free};

/// Every pinned block has its pin, and programs do that to it.
void check_pins(std::vector<strategy> const& how, schedule::program const& step) {
  for (std::uint32_t b = 0; b < pins.size(); ++b) {
    CAPTURE(b);
    if (pins[b] == pin::free) {
      continue;
    }
    CHECK(how[b] == activation::pinned(pins[b]));
    auto const count = [&](schedule::opcode op) {
      return std::ranges::count_if(step.instructions, [&](schedule::instruction const& i) {
        return i.op == op && i.block == block_id{b};
      });
    };
    CHECK(count(schedule::opcode::recompute) == (pins[b] == pin::checkpoint ? 2 : 0));
    CHECK(count(schedule::opcode::swap_out) == (pins[b] == pin::swap ? 2 : 0));
    CHECK(count(schedule::opcode::swap_in) == (pins[b] == pin::swap ? 2 : 0));
  }
}

template <class Assignment>
void check_policy(test::subject const& s, test::outcome const& want, plan::budget const& b) {
  auto const rules = policies<>{}.with(Assignment{});
  auto const found = plan::search(s.facts, hw::host_demo(), b, rules);
  REQUIRE(found.has_value());
  auto const programs = found->segments();
  REQUIRE(programs.has_value());
  check_pins(found->knobs.strategies, programs->front());
  device::serial_device d({.order = device::run_policy::adversarial});
  auto const run = test::train_on(d, s, found->layout, *programs, 3);
  CHECK(test::difference(run.bits, want) == "");
  CHECK(run.memory == "");
}

}  // namespace

TEST_CASE("the trace says what types are pinned to, also through functions") {
  trace::trace const t = profile::dry_run(make_model(), job);
  CHECK(activation::pins_of(t) == pins);
  // A pin is no part of what the block computes or needs.
  CHECK(t.shape(block_id{1}).saved == t.shape(block_id{5}).saved);
  CHECK(t.shape(block_id{6}).saved == t.shape(block_id{7}).saved);
}

TEST_CASE("no policy, budget or request moves a pin, and bits are those of the plain loop") {
  test::subject const s = test::make_subject(make_model(), job, test::uniform_values(0.4F));
  test::outcome const want = test::train_plain(s, 3);
  plan::budget const roomy{.gpu = {1U << 30U}, .host = {1U << 30U}};
  auto const least = plan::search(s.facts, hw::host_demo(), {.gpu = {0}, .host = roomy.host});
  REQUIRE_FALSE(least.has_value());
  for (plan::budget const& b :
       {roomy, plan::budget{.gpu = {least.failure().needs_device}, .host = roomy.host}}) {
    check_policy<activation::interleaved>(s, want, b);
  }
  check_policy<activation::keep_all>(s, want, roomy);
  check_policy<activation::checkpoint_all>(s, want, roomy);
  check_policy<activation::swap_first>(s, want, roomy);
  check_policy<activation::levels>(s, want, roomy);
  for (plan::request const& r :
       {plan::keep_all(), plan::checkpoint_all(), plan::interleaved_all()}) {
    auto const found = plan::make(s.facts, hw::host_demo(), roomy, policies<>{}, r);
    REQUIRE(found.has_value());
    check_pins(found->knobs.strategies, found->segments()->front());
  }
}

TEST_CASE("a plan with save levels that the model doesn't have is refused") {
  test::subject const s = test::make_subject(make_model(), job, test::uniform_values(0.4F));
  runtime::plan_parts parts = test::parts_of(s, {.persistent = {1}});
  parts.facts.shapes[1].levels = {{.name = "cheap"}};
  device::serial_device d;
  comm::self alone;
  CHECK(test::message_of([&] { runtime::engine engine(d, alone, s.table, parts); }) ==
        "the plan is for 1 save levels of block free.0, the model has 0: plan again for this "
        "model");
}

}  // namespace pins_test
