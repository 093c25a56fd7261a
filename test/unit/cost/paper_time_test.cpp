// SPDX-License-Identifier: Apache-2.0
// Equations (2) to (7) of the paper on three chunks, with the arithmetic beside each number.

#include "protrain/cost/paper_time.hpp"

#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "test/unit/cost/three_chunks.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace paper_time_test {

namespace {

using namespace protrain;
using cost::paper_numbers;

/// The equations of three_chunks() for some numbers.
struct sheet {
  cost::paper_job j = test::three_chunks();
  cost::paper_plan p;

  constexpr explicit sheet(paper_numbers const& n, bool drain = false) {
    j.drain = drain;
    p = cost::make_paper_plan(j, n);
  }
  constexpr std::uint64_t prefetch_forward(std::size_t i) const {
    return cost::prefetch_forward(j, p, i).value;
  }
  constexpr std::uint64_t prefetch_backward(std::size_t i) const {
    return cost::prefetch_backward(j, p, i).value;
  }
  constexpr std::uint64_t reduce_offload(std::size_t i) const {
    return cost::reduce_offload(j, p, i).value;
  }
  constexpr std::uint64_t forward() const { return cost::forward_time(j, p).value; }
  constexpr std::uint64_t backward() const { return cost::backward_time(j, p).value; }
  constexpr std::uint64_t iteration() const { return cost::iteration_time(j, p).value; }
};

TEST_CASE("(4): persistent chunks and the one past the last are not fetched") {
  sheet const s({.persist = 1});
  CHECK(s.prefetch_forward(1) == 0);
  CHECK(s.prefetch_forward(2) == 2 + 13);
  CHECK(s.prefetch_forward(3) == 3 + 17);
  CHECK(s.prefetch_forward(4) == 0);
  CHECK(sheet({}).prefetch_forward(1) == 1 + 7);
  CHECK(sheet({.persist = 3}).prefetch_forward(3) == 0);
}

TEST_CASE("(3): each chunk's compute hides the fetch of the next") {
  // i = 1: nothing runs beside the first fetch. i = 4: the last compute, nothing to fetch.
  CHECK(sheet({.persist = 1}).forward() == 0 + 15 + 20 + 5);
  CHECK(sheet({}).forward() == 8 + 15 + 20 + 5);
  CHECK(sheet({.persist = 3}).forward() == 0 + 10 + 10 + 5);
}

TEST_CASE("(3) has N_chunk + 1 terms, also for one chunk") {
  sheet s({});
  s.j.chunks.resize(1);
  s.j.blocks.resize(1);
  s.p = cost::make_paper_plan(s.j, {});
  CHECK(s.forward() == 8 + 10);
  s.p = cost::make_paper_plan(s.j, {.persist = 1});
  CHECK(s.forward() == 0 + 10);
}

TEST_CASE("(7): what is still in a buffer is not fetched again") {
  sheet const none({.persist = 1, .buffer = 0});
  CHECK(none.prefetch_backward(0) == 0);
  CHECK(none.prefetch_backward(1) == 0);
  CHECK(none.prefetch_backward(2) == 2 + 13);
  CHECK(none.prefetch_backward(3) == 3 + 17);
  sheet const one({.persist = 1, .buffer = 1});
  CHECK(one.prefetch_backward(2) == 2 + 13);
  CHECK(one.prefetch_backward(3) == 0);
  CHECK(sheet({.persist = 0, .buffer = 3}).prefetch_backward(1) == 0);
}

TEST_CASE("(6): persistent chunks reduce, others offload too") {
  sheet const s({.persist = 1});
  CHECK(s.reduce_offload(1) == 2);
  CHECK(s.reduce_offload(2) == 3 + 9);
  CHECK(s.reduce_offload(3) == 4 + 11);
  CHECK(s.reduce_offload(4) == 0);
  CHECK(sheet({}).reduce_offload(1) == 2 + 5);
  CHECK(sheet({.persist = 3}).reduce_offload(3) == 4);
}

TEST_CASE("(5) as it stands: a chunk's gradient leaves beside its own backward") {
  // i = 1: max(20, 0 + 2); i = 2: max(20, 0 + 12); i = 3: max(8, 15 + 15); i = 4: max(0, 20 + 0)
  CHECK(sheet({.persist = 1}).backward() == 20 + 20 + 30 + 20);
  // One buffer keeps chunk 3, two keep chunk 2 as well: max(8, 0 + 15).
  CHECK(sheet({.persist = 1, .buffer = 1}).backward() == 20 + 20 + 30 + 0);
  CHECK(sheet({.persist = 1, .buffer = 2}).backward() == 20 + 20 + 15 + 0);
  // i = 2: max(20, 8 + 12)
  CHECK(sheet({}).backward() == 20 + 20 + 30 + 20);
  CHECK(sheet({.persist = 3}).backward() == 20 + 20 + 8 + 0);
}

TEST_CASE("(5) with the drain: gradients leave beside the next backward, chunk 1's at the end") {
  // i = 1: max(20, 0 + 12); i = 2: max(20, 0 + 15); i = 3: max(8, 15 + 0); i = 4: max(0, 20); 2
  CHECK(sheet({.persist = 1}, true).backward() == 20 + 20 + 15 + 20 + 2);
  CHECK(sheet({.persist = 1, .buffer = 1}, true).backward() == 20 + 20 + 15 + 0 + 2);
  // i = 2: max(20, 8 + 15), and chunk 1 is offloaded too: 2 + 5
  CHECK(sheet({}, true).backward() == 20 + 23 + 15 + 20 + 7);
  CHECK(sheet({.persist = 3}, true).backward() == 20 + 20 + 8 + 0 + 2);
}

TEST_CASE("(5): a checkpointed block's forward runs again in its chunk's stage") {
  // Blocks 1 and 2. i = 1: max(20 + 10, 2); i = 2: max(20 + 10, 12).
  CHECK(sheet({.persist = 1, .checkpoint = 2}).backward() == 30 + 30 + 30 + 20);
  // All three: i = 3: max(8 + 5, 30).
  CHECK(sheet({.persist = 1, .checkpoint = 3}).backward() == 30 + 30 + 30 + 20);
  CHECK(sheet({.persist = 3, .checkpoint = 3}).backward() == 30 + 30 + 13 + 0);
}

TEST_CASE("(2): updates on the host overlap backward and those on the device") {
  sheet const s({.persist = 1}, true);
  // T_fwd 40, T_bwd 77, T_gpu_optim 3, T_cpu_optim 40 + 50
  CHECK(cost::times_of(s.j, s.p) == cost::paper_times{{40}, {77}, {3}, {90}});
  CHECK(s.iteration() == 40 + 90);
  // T_fwd 25, T_bwd 50, T_gpu_optim 3 + 4 + 5, nothing on the host
  CHECK(sheet({.persist = 3}, true).iteration() == 25 + 50 + 12);
  // T_fwd 48, T_bwd 85, everything on the host: 30 + 40 + 50
  CHECK(sheet({}, true).iteration() == 48 + 120);
}

TEST_CASE("(2): micro-batches repeat both passes, waiting updates overlap none") {
  sheet s({.persist = 1}, true);
  s.j.micro_batches = 3;
  CHECK(s.iteration() == 3 * 40 + 2 * 77 + 90);
  s.j.waits = true;
  CHECK(s.iteration() == 3 * 40 + 2 * 77 + 77 + 90);
}

TEST_CASE("chunks that move beside swapping are slower: forward") {
  // Block 1 leaves from 10 to 20, while chunk 2 computes and chunk 3 is fetched: 3 + 34.
  sheet const s({.swap = 1});
  CHECK(s.prefetch_forward(2) == 2 + 13);
  CHECK(s.prefetch_forward(3) == 3 + 34);
  CHECK(s.forward() == 8 + 15 + 37 + 5);
}

TEST_CASE("chunks that move beside swapping are slower: backward") {
  // Block 1 returns from 8 to 28, while chunk 2 runs backward, chunk 1 is fetched, and the gradient
  // of chunk 2 leaves, or of chunk 3 with the drain.
  sheet const own({.swap = 1});
  CHECK(own.prefetch_backward(1) == 1 + 14);
  CHECK(own.prefetch_backward(2) == 2 + 13);
  CHECK(own.reduce_offload(1) == 2 + 5);
  CHECK(own.reduce_offload(2) == 3 + 18);
  CHECK(own.reduce_offload(3) == 4 + 11);
  // i = 1: max(20, 7); i = 2: max(20, 15 + 21); i = 3: max(8, 15 + 15); i = 4: 20
  CHECK(own.backward() == 20 + 36 + 30 + 20);
  sheet const next({.swap = 1}, true);
  CHECK(next.reduce_offload(2) == 3 + 9);
  CHECK(next.reduce_offload(3) == 4 + 22);
  // i = 1: max(20, 12); i = 2: max(20, 15 + 26); i = 3: max(8, 15); i = 4: 20; 7
  CHECK(next.backward() == 20 + 41 + 15 + 20 + 7);
}

static_assert(sheet({.persist = 1}).forward() == 40);
static_assert(sheet({.persist = 1}).backward() == 90);
static_assert(sheet({.persist = 1}, true).backward() == 77);
static_assert(sheet({.persist = 3}, true).iteration() == 87);
static_assert(sheet({.swap = 1}, true).backward() == 103);

}  // namespace

}  // namespace paper_time_test
