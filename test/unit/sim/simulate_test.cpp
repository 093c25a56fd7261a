// SPDX-License-Identifier: Apache-2.0
// Simulation of hand-built programs, whose times can be counted on paper.

#include "protrain/sim/simulate.hpp"

#include "protrain/core/config.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/schedule/program.hpp"
#include "test/unit/sim/hand_built.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <stdexcept>

namespace simulate_test {

namespace {

using namespace protrain;
using schedule::opcode;
using test::builder;
using test::critical;
using test::of;

}  // namespace

TEST_CASE("an empty program takes no time") {
  sim::timeline const t = builder{}.run();
  CHECK(t.finish.value == 0);
}

TEST_CASE("a queue runs its instructions one after the other, other queues beside it") {
  builder b;
  b.add(opcode::forward, queue_id::compute, 10);
  b.add(opcode::forward, queue_id::compute, 5);
  b.add(opcode::upload, queue_id::h2d, 7);
  sim::timeline const t = b.run();
  CHECK(t.at[1].start.value == 10);
  CHECK(t.at[1].end.value == 15);
  CHECK(t.at[2].start.value == 0);
  CHECK(t.finish.value == 15);
  CHECK(of(t.busy, queue_id::compute) == 15);
  CHECK(of(t.busy, queue_id::h2d) == 7);
  CHECK(of(t.exposed, queue_id::h2d) == 0);
}

TEST_CASE("an instruction waits for the last of its dependencies") {
  builder b;
  std::uint32_t const slow = b.add(opcode::upload, queue_id::h2d, 30);
  std::uint32_t const fast = b.add(opcode::offload, queue_id::d2h, 4);
  b.add(opcode::forward, queue_id::compute, 10, {fast, slow});
  sim::timeline const t = b.run();
  CHECK(t.at[2].start.value == 30);
  CHECK(t.finish.value == 40);
  CHECK(of(t.exposed, queue_id::h2d) == 30);
  CHECK(of(t.exposed, queue_id::d2h) == 4);
}

TEST_CASE("exposed time is what compute does not cover") {
  builder b;
  b.add(opcode::forward, queue_id::compute, 10);
  std::uint32_t const up = b.add(opcode::upload, queue_id::h2d, 25);
  b.add(opcode::forward, queue_id::compute, 10, {up});
  std::uint32_t const down = b.add(opcode::offload, queue_id::d2h, 20, {up});
  b.add(opcode::update, queue_id::cpu, 3, {down});
  sim::timeline const t = b.run();
  // compute: [0, 10) and [25, 35); d2h [25, 45); cpu [45, 48)
  CHECK(of(t.exposed, queue_id::h2d) == 15);
  CHECK(of(t.exposed, queue_id::d2h) == 10);
  CHECK(of(t.exposed, queue_id::cpu) == 3);
  CHECK(of(t.exposed, queue_id::compute) == 0);
}

TEST_CASE("phases and what bounds them") {
  builder b;
  std::uint32_t const up = b.add(opcode::upload, queue_id::h2d, 40);
  b.add(opcode::forward, queue_id::compute, 10, {up});
  std::uint32_t const back = b.add(opcode::backward, queue_id::compute, 20);
  std::uint32_t const down = b.add(opcode::offload, queue_id::d2h, 5, {back});
  b.add(opcode::update, queue_id::cpu, 30, {down});
  sim::timeline const t = b.run();
  CHECK(t.forward_end.value == 50);
  CHECK(t.backward_end.value == 70);
  CHECK(t.finish.value == 105);
  CHECK(t.phases[0].value == 50);
  CHECK(t.phases[1].value == 20);
  CHECK(t.phases[2].value == 35);
  CHECK(critical(t, sim::phase::forward, queue_id::h2d) == 40);
  CHECK(critical(t, sim::phase::forward, queue_id::compute) == 10);
  CHECK(critical(t, sim::phase::update, queue_id::cpu) == 30);
  CHECK(sim::bound_by(t, sim::phase::forward) == queue_id::h2d);
  CHECK(sim::bound_by(t, sim::phase::backward) == queue_id::compute);
  CHECK(sim::bound_by(t, sim::phase::update) == queue_id::cpu);
  CHECK(sim::bound_by(t) == queue_id::h2d);
}

TEST_CASE("phases of several micro-batches are summed") {
  builder b;
  for (std::uint32_t m = 0; m < 3; ++m) {
    b.add(opcode::forward, queue_id::compute, 10, {}, m);
    b.add(opcode::backward, queue_id::compute, 20 + m, {}, m);
  }
  b.program.micro_batches = 3;
  sim::timeline const t = b.run();
  CHECK(t.phases[0].value == 30);
  CHECK(t.phases[1].value == 63);
  CHECK(t.phases[2].value == 0);
  CHECK(t.backward_end == t.finish);
}

TEST_CASE("the norm barrier adds up the busiest queues on both sides") {
  builder b;
  std::uint32_t const back = b.add(opcode::backward, queue_id::compute, 20);
  std::uint32_t const norm = b.add(opcode::norm_finish, queue_id::cpu, 1, {back});
  b.add(opcode::update, queue_id::compute, 30, {norm});
  b.add(opcode::update, queue_id::cpu, 25, {norm});
  CHECK(cost::lower_bound(b.program, b.durations).value == 51);
  CHECK(b.run().finish.value == 51);
}

TEST_CASE("without a barrier the bound is the busiest queue") {
  builder b;
  std::uint32_t const back = b.add(opcode::backward, queue_id::compute, 20);
  b.add(opcode::update, queue_id::cpu, 25, {back});
  CHECK(cost::lower_bound(b.program, b.durations).value == 25);
  CHECK(b.run().finish.value == 45);
}

TEST_CASE("a dependency on a later instruction is a contract error") {
  builder b;
  b.add(opcode::forward, queue_id::compute, 1, {1});
  b.add(opcode::forward, queue_id::compute, 1);
  auto const old =
      set_violation_handler([](violation const& v) { throw std::logic_error(v.message); });
  CHECK_THROWS_AS(b.run(), std::logic_error);
  b.durations.pop_back();
  CHECK_THROWS_AS(b.run(), std::logic_error);
  set_violation_handler(old);
}

}  // namespace simulate_test
