// SPDX-License-Identifier: Apache-2.0
// The engine from outside: what a step answers, what is read back, what it refuses, and what it
// leaves behind when a block fails.

#include "protrain/runtime/engine.hpp"

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/loss.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/mutants.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace engine_test {

namespace {

using namespace protrain;
using test::constant_batch;
using test::contains;
using test::message_of;

model::job mlp_job(dtype type, std::uint64_t accumulate = 2, float clip = 0.05F) {
  model::job job = test::job_of(type, accumulate, clip);
  job.micro_batch = 2;
  job.sequence = 3;
  job.dropout = 0.1F;
  return job;
}

test::subject mlp(model::job const& job) {
  test::mlp_config const config{.layers = 3};
  auto const load = test::uniform_values(0.4F);
  return job.type == dtype::f32 ? test::make_subject(test::make_mlp<float>(config), job, load)
                                : test::make_subject(test::make_mlp<bfloat16>(config), job, load);
}

test::placement const mixed{.persistent = {0, 1, 0},
                            .counts = {.swap = 1, .checkpoint = 1, .interval = 2}};

// --- results -------------------------------------------------------------------------------------

TEST_CASE("a step answers its number, its mean loss, its norm and its tokens") {
  test::subject const s = test::four_tensors(test::job_of(dtype::f32, 4));
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, mixed));
  engine.initialise(s.load);
  for (std::uint64_t step = 1; step <= 3; ++step) {
    auto const r = engine.step(constant_batch({1, 2, 3, 6}), {.learning_rate = 1e-3}).get();
    CHECK(r.step == step);
    CHECK(r.loss == 3);
    CHECK(r.grad_norm == static_cast<float>(std::sqrt(144.0 * 1593)));
    CHECK(r.grad_norm_clipped == r.grad_norm);
    CHECK(r.tokens == 4);
    CHECK(r.seconds >= 0);
  }
}

TEST_CASE("losses are averaged in fp64 and rounded once; no targets, no loss") {
  std::vector<float> const losses{16777216.0F, 1.0F, 1.0F};
  CHECK(runtime::mean_loss(losses, 1) == 16777218.0F);
  CHECK(runtime::mean_loss(losses, 3) == static_cast<float>(16777218.0 / 3));
  CHECK(runtime::mean_loss(losses, 0) == 0);
  CHECK(runtime::mean_loss({}, 5) == 0);
  CHECK(runtime::loss_scale(3) == static_cast<float>(1.0 / 3));
  CHECK(runtime::loss_scale(0) == 0);
}

TEST_CASE("values come back as they were given: fp32, and fp32 masters of bf16") {
  // Every pattern of the low half, among them ties of the rounding to bf16.
  auto const load = [](model::parameter const& p, std::span<float> values) {
    auto const base = static_cast<std::uint32_t>(p.name.view().back()) << 18U;
    for (std::uint32_t i = 0; i < values.size(); ++i) {
      values[i] = std::bit_cast<float>(0x3F000000U + base + i * 257U);
    }
  };
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(test::job_of(type), load);
    for (test::placement const& p : test::placements()) {
      device::serial_device d;
      comm::self alone;
      runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
      for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
        auto const id = make_id<parameter_id>(i);
        auto const zeros = engine.read(id);
        CHECK(test::bits_of(zeros) == std::vector<std::uint32_t>(zeros.size(), 0));
      }
      engine.initialise(load);
      for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
        std::vector<float> want(model::elements(s.table.parameters[i]));
        load(s.table.parameters[i], want);
        CHECK(test::bits_of(engine.read(make_id<parameter_id>(i))) == test::bits_of(want));
      }
    }
  }
}

TEST_CASE("initialise starts anew: the same bits as a fresh engine") {
  test::subject const s = mlp(mlp_job(dtype::bf16));
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, mixed));
  test::outcome const first = test::train(engine, s, 3);
  CHECK(test::difference(test::train(engine, s, 3), first) == "");
}

TEST_CASE("jobs of one micro-batch, without batch tensors, without clipping, all frozen") {
  for (bool const frozen : {false, true}) {
    auto const first = make_block(
        [&](block_builder& b) {
          b.parameter("w", {200}, {.trainable = !frozen});
          b.output({8}, dtype::f32);
          b.reads_input(false);
        },
        [](scope& s, tensor_view, tensor_view y) {
          s.run([&] { std::ranges::fill(y.elements_as<float>(), *s.value({0}).as<float>()); });
        },
        [](scope& s, tensor_view, tensor_view dy, tensor_view) {
          s.run([&] {
            for (float& g : s.gradient({0}).elements_as<float>()) {
              g = *dy.as<float>();
            }
          });
        });
    auto const last = make_block(
        [](block_builder& b) { b.input({8}, dtype::f32); },
        [](scope& s, tensor_view x, tensor_view) { s.run([&] { s.loss(0, x.as<float>()[7]); }); },
        [](scope& s, tensor_view, tensor_view, tensor_view dx) {
          s.run([&] { std::ranges::fill(dx.elements_as<float>(), s.loss_scale()); });
        });
    test::subject const s =
        test::make_subject(stack{first, last}, test::job_of(dtype::f32), test::uniform_values(1));
    for (test::placement const& p : test::placements()) {
      for (update::timing const time :
           {update::timing::after_backward, update::timing::during_backward}) {
        test::placement at = p;
        at.time = time;
        device::serial_device d({.order = device::run_policy::adversarial, .check_writes = true});
        auto const parts = test::parts_of(s, at);
        test::engine_run const run = test::train_on(d, s, parts.layout, parts.programs.front(), 3);
        CHECK(test::difference(run.bits, test::train_plain(s, 3)) == "");
        CHECK(run.memory == "");
        CHECK((run.bits.norms[0] == 0) == frozen);
        CHECK((run.bits.losses[0] == run.bits.losses[2]) == frozen);
      }
    }
  }
}

// --- refused -------------------------------------------------------------------------------------

std::string refused(test::subject const& s, runtime::plan_parts parts) {
  device::serial_device d;
  comm::self alone;
  std::string const why =
      message_of([&] { runtime::engine engine(d, alone, s.table, std::move(parts)); });
  CHECK(test::live(d) == 0);
  CHECK((d.calls() == 0) == !why.empty());
  return why;
}

TEST_CASE("a plan of another model is refused and the parameter named") {
  model::job const job = test::job_of(dtype::f32);
  test::subject const s = test::four_tensors(job);
  auto const parts = test::parts_of(s, mixed);
  CHECK(refused(s, parts) == "");
  test::subject const wider =
      test::constant_model(job, {{"a", {1000}}, {"b", {38}}}, {{"c", {10, 30}}}, {{"d", {256}}});
  CHECK(contains(refused(wider, parts), "parameter b"));
  test::subject const frozen = test::constant_model(
      job, {{"a", {1000}}, {"b", {37}}}, {{"c", {10, 30}, false}}, {{"d", {256}}});
  CHECK(contains(refused(frozen, parts), "parameter c"));
  test::subject const fewer =
      test::constant_model(job, {{"a", {1000}}, {"b", {37}}}, {{"c", {10, 30}}}, {});
  CHECK(contains(refused(fewer, parts), "4 parameters, the model has 3"));
}

TEST_CASE("a program of another job is refused") {
  test::subject const s = test::four_tensors(test::job_of(dtype::f32));
  auto parts = test::parts_of(s, mixed);
  parts.facts.job.seed = 99;
  CHECK(contains(refused(s, parts), "another job"));
}

TEST_CASE("a plan for other ranks is refused") {
  test::subject const s = test::four_tensors(test::job_of(dtype::f32));
  auto parts = test::parts_of(s, mixed);
  parts.facts.job.world = 3;
  CHECK(contains(refused(s, parts), "3 ranks, the communicator has 1"));
}

TEST_CASE("a damaged program is refused with the instruction") {
  test::subject const s = test::four_tensors(test::job_of(dtype::f32, 2));
  auto const good = test::parts_of(s, mixed);
  for (std::uint32_t const at :
       test::positions(good.programs.front(), [](schedule::instruction const& i) {
         return i.op == schedule::opcode::update || i.op == schedule::opcode::accumulate;
       })) {
    test::editable e(good.programs.front());
    e.erase(at);
    runtime::plan_parts parts = good;
    parts.programs.front() = e.program();
    schedule::verdict const v = schedule::verify(parts.programs.front(), parts.facts, parts.layout);
    REQUIRE_FALSE(v.ok);
    CHECK(contains(refused(s, parts), "instruction " + std::to_string(v.instruction)));
    CHECK(contains(refused(s, parts), v.what));
  }
}

TEST_CASE("a batch that doesn't fit is refused, and the engine goes on") {
  test::subject const s = mlp(mlp_job(dtype::f32));
  device::serial_device d;
  comm::self alone;
  runtime::engine engine(d, alone, s.table, test::parts_of(s, mixed));
  engine.initialise(s.load);
  auto const step = [&](runtime::batch const& b) {
    return message_of([&] { (void)engine.step(b, {.learning_rate = 1e-2}).get(); });
  };
  std::vector<float> const data(1000);
  std::uint64_t const features = 2ULL * 2 * 3 * 6 * sizeof(float);
  CHECK(contains(step(runtime::batch().targets(1)), "no tensor features"));
  runtime::batch half;
  half.add("features", data.data(), features).targets(1);
  CHECK(contains(step(half), "no tensor targets"));
  runtime::batch small;
  small.add("features", data.data(), features / 2).add("targets", data.data(), features).targets(1);
  std::string const why = step(small);
  CHECK(contains(why, "features"));
  CHECK(contains(why, std::to_string(features / 2)));
  CHECK(contains(why, std::to_string(features)));
  CHECK(test::difference(test::train(engine, s, 3), test::train_plain(s, 3)) == "");
}

TEST_CASE("a host limit below the plan's need is refused: space, bytes asked, bytes held") {
  test::subject const s = mlp(mlp_job(dtype::f32));
  auto const parts = test::parts_of(s, {.persistent = {0}});
  for (space const where : {space::device, space::host}) {
    std::uint64_t const peak = schedule::memory_of(parts.programs.front(), where).peak;
    device::serial_options options;
    options.limit[static_cast<std::size_t>(where)] = peak - 1;
    device::serial_device d(options);
    comm::self alone;
    std::string const why = message_of([&] { runtime::engine engine(d, alone, s.table, parts); });
    CHECK(contains(why, std::string(name_of(where)) + " memory"));
    CHECK(contains(why, std::to_string(peak)));
    CHECK(test::live(d) == 0);
  }
}

// --- failures ------------------------------------------------------------------------------------

/// Trains 2 steps, meets the trap in the third, tries again, and ends with 4 steps.
template <class Device>
void retry_on(Device& d, test::subject const& s, test::trap const& trap) {
  comm::self alone;
  {
    runtime::engine engine(d, alone, s.table, test::parts_of(s, mixed));
    engine.initialise(s.load);
    test::outcome seen;
    test::add_steps(seen, engine, s, 0, 2);
    CHECK(message_of([&] { test::add_steps(seen, engine, s, 2, 1); }) == "the trap snapped");
    CHECK(trap.calls >= trap.fail_at);
    test::add_steps(seen, engine, s, 2, 2);
    test::add_parameters(seen, engine, s);
    CHECK(test::difference(seen, test::train_plain(s, 4)) == "");
    CHECK(test::memory_difference(engine) == "");
  }
  CHECK(test::live(d) == 0);
}

TEST_CASE("a block that throws before any update leaves the engine usable, with the same bits") {
  for (bool const backward : {false, true}) {
    for (std::size_t block = 0; block < 5; ++block) {
      CAPTURE(backward);
      CAPTURE(block);
      test::subject s = mlp(mlp_job(dtype::bf16));
      test::subject const count = s;
      // Passes of two steps, with recomputes: the trap snaps in the third.
      test::trap meter;
      {
        test::subject counted = s;
        test::set_trap(counted, block, backward, meter);
        device::serial_device d;
        auto const parts = test::parts_of(counted, mixed);
        test::train_on(d, counted, parts.layout, parts.programs.front(), 2);
      }
      test::trap trap;
      test::set_trap(s, block, backward, trap);
      trap.fail_at = meter.calls + 2;
      device::serial_device serial({.order = device::run_policy::random, .seed = block});
      retry_on(serial, s, trap);
      test::trap again;
      test::subject t = count;
      test::set_trap(t, block, backward, again);
      again.fail_at = meter.calls + 1;
      device::host_device host;
      retry_on(host, t, again);
    }
  }
}

TEST_CASE("after an update a failure leaves initialise and destruction; the device serves again") {
  test::subject const good = mlp(mlp_job(dtype::f32, 1, 0));
  test::subject s = good;
  test::trap trap;
  test::set_trap(s, 0, true, trap);
  trap.fail_at = 2;
  test::placement const early{.persistent = {1}, .time = update::timing::during_backward};
  device::serial_device d;
  comm::self alone;
  {
    runtime::engine engine(d, alone, s.table, test::parts_of(s, early));
    engine.initialise(s.load);
    test::outcome seen;
    CHECK(message_of([&] { test::add_steps(seen, engine, s, 0, 2); }) == "the trap snapped");
    CHECK(contains(message_of([&] { test::add_steps(seen, engine, s, 1, 1); }), "make a new one"));
    CHECK(contains(message_of([&] { test::add_steps(seen, engine, s, 1, 1); }), "make a new one"));
    CHECK(test::difference(test::train(engine, s, 3), test::train_plain(good, 3)) == "");
  }
  CHECK(test::live(d) == 0);
  auto const parts = test::parts_of(good, early);
  auto const run = test::train_on(d, good, parts.layout, parts.programs.front(), 3);
  CHECK(test::difference(run.bits, test::train_plain(good, 3)) == "");
}

TEST_CASE("a block that asks for more than its trace is named, with the operator") {
  using deed = test::trap::deed;
  for (deed const what : {deed::greedy_scratch, deed::greedy_save}) {
    test::subject s = mlp(mlp_job(dtype::f32));
    test::trap trap;
    test::set_trap(s, 2, false, trap);
    trap.what = what;
    trap.fail_at = 1;
    device::serial_device d({.check_writes = true});
    comm::self alone;
    runtime::engine engine(d, alone, s.table, test::parts_of(s, mixed));
    engine.initialise(s.load);
    test::outcome seen;
    std::string const why = message_of([&] { test::add_steps(seen, engine, s, 0, 1); });
    CHECK(contains(why, "block h.1"));
    CHECK(contains(why, what == deed::greedy_scratch ? "operator 'greedy'" : "of saved memory"));
    CHECK(contains(why, "1048576 bytes"));
    test::add_steps(seen, engine, s, 0, 3);
    test::add_parameters(seen, engine, s);
    CHECK(test::difference(seen, test::train_plain(mlp(s.job()), 3)) == "");
  }
}

TEST_CASE("engines of different plans take turns on one device") {
  test::subject const s = mlp(mlp_job(dtype::bf16));
  test::outcome const plain = test::train_plain(s, 2);
  device::host_device d;
  for (int round = 0; round < 2; ++round) {
    for (test::placement const& p : test::placements()) {
      auto const parts = test::parts_of(s, p);
      auto const run = test::train_on(d, s, parts.layout, parts.programs.front(), 2);
      CHECK(test::difference(run.bits, plain) == "");
      CHECK(run.memory == "");
      CHECK(test::live(d) == 0);
    }
  }
}

}  // namespace

}  // namespace engine_test
