// SPDX-License-Identifier: Apache-2.0
// The closed form's quantities of two blocks on two ranks, with the arithmetic beside each number.

#include "protrain/cost/paper_inputs.hpp"

#include "protrain/chunk/layout.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_memory.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace paper_inputs_test {

namespace {

using namespace protrain;
using update::timing;

/// Two blocks of 512 and 1024 fp32 elements, each a chunk of its own.
constexpr trace::trace two_blocks(std::uint64_t world) {
  trace::trace t{.job = {.micro_batch = 1, .world = world}};
  t.shapes = {{.name = "first",
               .forward = {10},
               .backward = {20},
               .output = {300},
               .saved = {1000},
               .scratch_backward = {700}},
              {.name = "last",
               .forward = {30},
               .backward = {60},
               .input = {300},
               .saved = {3000},
               .scratch_backward = {100}}};
  t.blocks = {shape_id{0}, shape_id{1}};
  t.parameters.push_back({.name = "a", .shape = {512}, .uses = {block_id{0}}});
  t.parameters.push_back({.name = "b", .shape = {1024}, .uses = {block_id{1}}});
  t.batch = {100};
  return t;
}

/// In picoseconds per byte: up 1, down 2, collectives 4, device 1, host 10; 100 ps of latency.
constexpr hw::machine machine() {
  return {.devices = 4,
          .host_to_device = {1'000'000'000'000},
          .device_to_host = {500'000'000'000},
          .copy_latency = {100},
          .device_bandwidth = {1'000'000'000'000},
          .host_bandwidth = {100'000'000'000},
          .collective = {250'000'000'000}};
}

template <link::bandwidth_policy B = link::fixed>
constexpr cost::paper_job job_of(trace::trace const& t,
                                 timing time = timing::during_backward,
                                 B const& policy = {}) {
  return *cost::make_paper_job(t, chunk::make_layout(t, 1024), machine(), time, policy);
}

TEST_CASE("transfers: shards between host and device, whole chunks between ranks") {
  cost::paper_job const j = job_of(two_blocks(2));
  REQUIRE(j.chunks.size() == 2);
  // 256 elements of 4 bytes a rank: up 1024 + 100, down 2 * 1024 + 100, between 4 * 2048 + 100.
  CHECK(j.chunks[0].alone == cost::paper_transfers{{8292}, {1124}, {8292}, {2148}});
  // Twice the elements.
  CHECK(j.chunks[1].alone == cost::paper_transfers{{16484}, {2148}, {16484}, {4196}});
  CHECK(j.chunks[0].beside_swap == j.chunks[0].alone);
}

TEST_CASE("transfers of one rank and of four") {
  // 512 elements: up 2048 + 100, down 4096 + 100; there is no one to gather from.
  CHECK(job_of(two_blocks(1)).chunks[0].alone == cost::paper_transfers{{0}, {2148}, {0}, {4196}});
  // 128 elements: up 512 + 100, down 1024 + 100, 2048 bytes between ranks at 4: 8192 + 100.
  CHECK(job_of(two_blocks(4)).chunks[0].alone ==
        cost::paper_transfers{{8292}, {612}, {8292}, {1124}});
}

TEST_CASE("transfers beside swapping take the policy's rates") {
  cost::paper_job const j = job_of(two_blocks(2),
                                   timing::during_backward,
                                   link::derated{.host_to_device = 500, .device_to_host = 250});
  CHECK(j.chunks[0].alone == cost::paper_transfers{{8292}, {1124}, {8292}, {2148}});
  // Up at 2: 2048 + 100; down at 8: 8192 + 100; collectives as before.
  CHECK(j.chunks[0].beside_swap == cost::paper_transfers{{8292}, {2148}, {8292}, {8292}});
}

TEST_CASE("updates: a rank's shard, on a host that its ranks share") {
  cost::paper_job const j = job_of(two_blocks(2));
  // 256 elements read and write 2 * (4 + 8) bytes and read 4 of gradient; the norm reads 4.
  CHECK(j.chunks[0].gpu_optimizer.value == 256 * 28 + 256 * 4);
  CHECK(j.chunks[0].cpu_optimizer.value == (256 * 28 + 256 * 4) * 10 * 2);
  CHECK_FALSE(j.waits);
  cost::paper_job const late = job_of(two_blocks(2), timing::after_backward);
  CHECK(late.waits);
  CHECK(late.chunks[0].gpu_optimizer == j.chunks[0].gpu_optimizer);
}

TEST_CASE("bytes of chunks: values of all, states of a shard, in granules") {
  cost::paper_job const j = job_of(two_blocks(2));
  CHECK(j.chunks[0].persistent == bytes{512 * 4 + 256 * 8});
  CHECK(j.chunks[1].persistent == bytes{1024 * 4 + 512 * 8});
  CHECK(j.buffer == bytes{1024 * 4});
  // With the norm in between, the gradient is stored too.
  CHECK(job_of(two_blocks(2), timing::after_backward).chunks[0].persistent ==
        bytes{512 * 4 + 256 * 8 + 256 * 4});
}

TEST_CASE("buffers: one more than a block needs, no more than chunks move") {
  CHECK(job_of(two_blocks(2)).buffers == std::vector<cost::paper_buffers>{{2, 2}, {1, 1}, {0, 0}});
}

TEST_CASE("blocks: times, and what swapping and checkpointing save") {
  cost::paper_job const j = job_of(two_blocks(2));
  REQUIRE(j.blocks.size() == 2);
  CHECK(j.blocks[0] == cost::paper_block{.chunk = 0,
                                         .forward = {10},
                                         .backward = {20},
                                         .swap_out = {2 * 1000 + 100},
                                         .swap_in = {1000 + 100},
                                         .swap_saving = {1024},
                                         .checkpoint_saving = {1024}});
  CHECK(j.blocks[1].chunk == 1);
  CHECK(j.blocks[1].swap_saving == bytes{3072});
  CHECK(j.chunks[0].forward == picoseconds{10});
  CHECK(j.chunks[1].backward == picoseconds{60});
  // 2100 over 10 is beyond the two blocks there are.
  CHECK(j.interval == 2);
}

TEST_CASE("a block that need not keep its input must when checkpointed") {
  trace::trace t = two_blocks(1);
  t.shapes[1].reads_input = false;
  CHECK(job_of(t).blocks[1].checkpoint_saving == bytes{3072 - 512});
  CHECK(job_of(t).blocks[1].swap_saving == bytes{3072});
}

TEST_CASE("operators: dx before a block's backward, dy and x gone after it") {
  cost::paper_job const j = job_of(two_blocks(2));
  REQUIRE(j.operators.size() == 2);
  CHECK(j.operators[0] == cost::paper_operator{.block = 1,
                                               .current_prior = 512,
                                               .peak_prior = 512,
                                               .current_own = -512,
                                               .peak_own = 256,
                                               .activations = {3072}});
  CHECK(j.operators[1] ==
        cost::paper_operator{
            .block = 0, .current_own = -512, .peak_own = 768, .activations = {1024}});
  // The batch, the losses, x of the last block, two gradient slots of 4096 bytes.
  CHECK(j.forward_end == bytes{256 + 256 + 512 + 2 * 4096});
  // Everything saved is gone at the end, and x with it.
  cost::paper_plan const p = cost::make_paper_plan(j, {});
  bytes now = cost::current_memory_at_start(j, p);
  CHECK(now == bytes{9216 + 3072 + 1024});
  for (std::size_t i = 1; i <= 2; ++i) {
    now = cost::current_memory(j, p, i, now);
  }
  CHECK(now == bytes{256 + 256 + 2 * 4096});
}

TEST_CASE("micro-batches: one batch ahead, a loss each") {
  trace::trace t = two_blocks(1);
  t.job.accumulate = 3;
  cost::paper_job const j = job_of(t);
  CHECK(j.micro_batches == 3);
  CHECK(j.forward_end == bytes{2 * 256 + 3 * 256 + 512 + 2 * 4096});
}

TEST_CASE("a frozen chunk has neither gradient nor state") {
  trace::trace t = two_blocks(2);
  t.parameters[0].trainable = false;
  cost::paper_job const j = job_of(t);
  CHECK(j.chunks[0].alone == cost::paper_transfers{{8292}, {1124}, {0}, {0}});
  CHECK(j.chunks[0].gpu_optimizer == picoseconds{});
  CHECK(j.chunks[0].cpu_optimizer == picoseconds{});
  CHECK(j.chunks[0].persistent == bytes{2048});
}

TEST_CASE("a tied tensor is fetched once, and its gradient leaves once for each use") {
  trace::trace t = two_blocks(1);
  t.parameters[0].uses = {block_id{0}, block_id{1}};
  cost::paper_job const j = job_of(t);
  CHECK(j.chunks[0].alone == cost::paper_transfers{{0}, {2148}, {0}, {2 * 4196}});
  CHECK(j.blocks[1].chunk == 1);
}

TEST_CASE("a block without parameters runs where the one before it does") {
  trace::trace t = two_blocks(1);
  t.shapes.push_back({.name = "head", .forward = {7}, .backward = {9}, .input = {0}});
  t.blocks.push_back(shape_id{2});
  cost::paper_job const j = job_of(t);
  CHECK(j.blocks[2].chunk == 1);
  CHECK(j.chunks[1].forward == picoseconds{30 + 7});
}

TEST_CASE("an oversize chunk has a slot, not a buffer") {
  trace::trace const t = two_blocks(1);
  auto const j = *cost::make_paper_job(
      t, chunk::make_layout(t, 512), machine(), timing::during_backward, link::fixed{});
  REQUIRE(j.chunks.size() == 2);
  CHECK(j.chunks[0].own_slot == bytes{});
  CHECK(j.chunks[1].own_slot == bytes{4096});
  CHECK(j.buffer == bytes{2048});
  CHECK(j.buffers == std::vector<cost::paper_buffers>{{1, 1}, {0, 0}, {0, 0}});
}

TEST_CASE("the interval is that of the shape most free blocks have") {
  trace::trace t = two_blocks(1);
  t.shapes[1].forward = {1000};  // 6100 over 1000
  t.blocks.insert(t.blocks.end(), 8, shape_id{1});
  CHECK(job_of(t).interval == 7);
  t.shapes[1].pinned = trace::pin::checkpoint;  // 2100 over 10, of ten blocks
  CHECK(job_of(t).interval == 10);
  t.shapes[0].pinned = trace::pin::keep;
  CHECK(job_of(t).interval == 1);
}

TEST_CASE("what is no job is refused") {
  trace::trace t = two_blocks(1);
  chunk::layout const l = chunk::make_layout(t, 1024);
  auto const refused = [&](trace::trace const& of, chunk::layout const& with) {
    return cost::make_paper_job(of, with, machine(), timing::during_backward).failure().code;
  };
  CHECK(refused(t, {}) == errc::invalid_argument);
  CHECK(refused({}, l) == errc::invalid_argument);
  t.job.type = dtype::i32;
  CHECK(refused(t, l) == errc::not_allowed);
}

static_assert(job_of(two_blocks(2)).chunks[0].alone.gather == picoseconds{8292});

}  // namespace

}  // namespace paper_inputs_test
