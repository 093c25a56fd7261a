// SPDX-License-Identifier: Apache-2.0
// How long each kind of instruction takes at round rates.

#include "protrain/sim/durations.hpp"

#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace durations_test {

namespace {

using namespace protrain;
using schedule::access;
using schedule::opcode;

/// One byte takes 1 ps up, 2 ps down, 4 ps in a collective, 8 on the device, 16 on the host.
hw::machine round_machine() {
  constexpr std::uint64_t ps = 1'000'000'000'000;
  return {.host_to_device = {ps},
          .device_to_host = {ps / 2},
          .copy_latency = {100},
          .device_bandwidth = {ps / 8},
          .host_bandwidth = {ps / 16},
          .collective = {ps / 4}};
}

trace::trace one_block() {
  trace::trace t{};
  t.shapes.push_back({.name = "block", .forward = {300}, .backward = {700}});
  t.blocks.push_back(shape_id{0});
  return t;
}

/// Duration of one instruction that reads 10 bytes and updates 20.
std::uint64_t duration(opcode op,
                       queue_id queue,
                       std::uint64_t amount,
                       std::uint64_t world = 1,
                       hw::machine const& machine = round_machine()) {
  trace::trace t = one_block();
  t.job.world = world;
  schedule::program p{};
  p.operands.push_back({.mode = access::read, .bytes = 10});
  p.operands.push_back({.mode = access::read_write, .bytes = 20});
  p.instructions.push_back(
      {.op = op, .queue = queue, .block = block_id{0}, .amount = amount, .operand_count = 2});
  return sim::durations_of(p, t, machine).front().value;
}

}  // namespace

TEST_CASE("compute takes the trace's time") {
  CHECK(duration(opcode::forward, queue_id::compute, 0) == 300);
  CHECK(duration(opcode::recompute, queue_id::compute, 0) == 300);
  CHECK(duration(opcode::backward, queue_id::compute, 0) == 700);
}

TEST_CASE("copies take their bytes and the latency") {
  for (opcode const op : {opcode::batch_load, opcode::upload, opcode::swap_in, opcode::state_in}) {
    CHECK(duration(op, queue_id::h2d, 1000) == 1100);
  }
  for (opcode const op : {opcode::swap_out, opcode::offload, opcode::state_out}) {
    CHECK(duration(op, queue_id::d2h, 1000) == 2100);
  }
  CHECK(duration(opcode::scalars_upload, queue_id::h2d, 16) == 116);
  CHECK(duration(opcode::norm_read, queue_id::d2h, 64) == 228);
  CHECK(duration(opcode::loss_read, queue_id::d2h, 4) == 108);
}

TEST_CASE("collectives of one rank take no time") {
  CHECK(duration(opcode::gather, queue_id::gather, 1000) == 0);
  CHECK(duration(opcode::reduce, queue_id::reduce, 1000) == 0);
  CHECK(duration(opcode::gather, queue_id::gather, 1000, 2) == 4100);
}

TEST_CASE(
    "bandwidth measured alone, used together: ranks of a host take the rates of all at once") {
  hw::machine m = round_machine();
  m.devices = 2;
  m.collective_latency = {500};
  m.concurrent.all_ranks = {{m.host_to_device.per_second / 2}, {m.device_to_host.per_second / 5}};
  CHECK(duration(opcode::upload, queue_id::h2d, 1000, 1, m) == 1100);
  CHECK(duration(opcode::upload, queue_id::h2d, 1000, 2, m) == 2100);
  CHECK(duration(opcode::offload, queue_id::d2h, 1000, 2, m) == 10'100);
  CHECK(duration(opcode::gather, queue_id::gather, 1000, 2, m) == 4500);
  m.devices = 1;
  CHECK(duration(opcode::upload, queue_id::h2d, 1000, 2, m) == 1100);
}

TEST_CASE("memory-bound work takes what its operands move, at its queue's memory") {
  for (opcode const op : {opcode::zero, opcode::accumulate, opcode::norm_partial, opcode::update}) {
    CHECK(duration(op, queue_id::compute, 0) == 50 * 8);
    CHECK(duration(op, queue_id::cpu, 0) == 50 * 16);
  }
  CHECK(duration(opcode::norm_finish, queue_id::cpu, 0) == 50 * 16);
  CHECK(duration(opcode::update_part, queue_id::compute, 0) == 50 * 8);
}

TEST_CASE("ranks of a host share its memory, and lose what their threads can't run") {
  trace::trace t = one_block();
  schedule::program p{};
  p.operands.push_back({.mode = access::read_write, .bytes = 100});
  p.instructions.push_back({.op = opcode::update, .queue = queue_id::cpu, .operand_count = 1});
  auto const update = [&](std::uint64_t world, hw::machine m) {
    t.job.world = world;
    return sim::durations_of(p, t, m).front().value;
  };
  hw::machine m = round_machine();
  m.devices = 8;
  m.host_threads = 16;
  CHECK(update(1, m) == 200 * 16);
  CHECK(update(4, m) == 200 * 16 * 4);
  CHECK(update(16, m) == 200 * 16 * 8);  // of which 8 are on this host
  m.usable_threads = 2;                  // of 16
  CHECK(update(1, m) == 200 * 16 * 8);
  CHECK(update(8, m) == 200 * 16 * 8 * 8);  // eight threads share two processors
  m.devices = 1;
  CHECK(update(8, m) == 200 * 16 * 8);
}

}  // namespace durations_test
