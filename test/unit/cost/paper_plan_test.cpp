// SPDX-License-Identifier: Apache-2.0
// The swap interval, how many blocks may be swapped, and which stages swapping touches.

#include "protrain/cost/paper_plan.hpp"

#include "protrain/activation/strategy.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "test/support/contract.hpp"
#include "test/unit/cost/three_chunks.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace paper_plan_test {

namespace {

using namespace protrain;
using flags = std::vector<std::uint8_t>;

/// Blocks of forward 10 and backward 20, each in a chunk of its own.
constexpr cost::paper_job row(std::uint32_t blocks, std::uint64_t out, std::uint64_t in) {
  cost::paper_job j{.interval = cost::swap_interval({out}, {10}, blocks)};
  for (std::uint32_t b = 0; b < blocks; ++b) {
    j.chunks.push_back({.forward = {10}, .backward = {20}});
    j.blocks.push_back(
        {.chunk = b, .forward = {10}, .backward = {20}, .swap_out = {out}, .swap_in = {in}});
  }
  return j;
}

TEST_CASE("the interval is the time of a copy out over a forward, rounded up, at least 1") {
  CHECK(cost::swap_interval({30}, {10}, 8) == 3);
  CHECK(cost::swap_interval({31}, {10}, 8) == 4);
  CHECK(cost::swap_interval({9}, {10}, 8) == 1);
  CHECK(cost::swap_interval({0}, {10}, 8) == 1);
  CHECK(cost::swap_interval({81}, {10}, 8) == 8);
  CHECK(cost::swap_interval({1}, {0}, 8) == 8);
  CHECK(cost::swap_interval({1}, {0}, 0) == 1);
}

TEST_CASE("swaps out must end before forward does") {
  // Candidates 1, 4, 7 of 8: copies out 10-35, 40-65, 70-95 of 80.
  CHECK(cost::most_swapped(row(8, 25, 25)) == 2);
  // 10-20, 20-30, ..., 70-80, and the eighth would end at 90.
  CHECK(cost::most_swapped(row(8, 10, 10)) == 7);
  CHECK(cost::most_swapped(row(8, 70, 10)) == 1);
  CHECK(cost::most_swapped(row(8, 71, 10)) == 0);
  CHECK(cost::most_swapped(row(1, 5, 5)) == 0);
}

TEST_CASE("copies out queue up behind each other") {
  cost::paper_job j = row(4, 10, 1);
  j.blocks[0].swap_out = {25};  // 10-35; block 2's then is 35-45 of 40
  CHECK(cost::most_swapped(j) == 1);
}

TEST_CASE("swaps in must be done when their block's backward begins") {
  // Backward of block 1 begins at 140, of block 4 at 80: both copies in 61 to end there.
  CHECK(cost::most_swapped(row(8, 25, 80)) == 1);
  CHECK(cost::most_swapped(row(8, 25, 70)) == 2);
  CHECK(cost::most_swapped(row(8, 25, 141)) == 0);
}

TEST_CASE("pinned blocks are no candidates") {
  cost::paper_job j = row(8, 25, 25);
  for (std::size_t const b : {0U, 1U, 2U}) {
    j.blocks[b].pinned = trace::pin::keep;
  }
  // Candidates 4 and 7: 40-65, 70-95.
  CHECK(cost::most_swapped(j) == 1);
}

TEST_CASE("recomputation lies where the chunk of the block is") {
  cost::paper_job j = row(3, 5, 5);
  j.blocks[1].chunk = 0;
  j.blocks[2].forward = {7};
  j.blocks[2].chunk = 2;
  auto const p = cost::make_paper_plan(j, {.checkpoint = 3});
  CHECK(p.recompute == std::vector<picoseconds>{{0}, {20}, {0}, {7}, {0}});
}

TEST_CASE("stages that a swap touches, at their borders") {
  cost::paper_job j = test::three_chunks();
  auto const marks = [&](std::uint64_t out, std::uint64_t in, std::uint32_t checkpoint) {
    j.blocks[0].swap_out = {out};
    j.blocks[0].swap_in = {in};
    return cost::make_paper_plan(j, {.swap = 1, .checkpoint = checkpoint});
  };
  // Forward stages 0-10, 10-20, 20-25; the copy out begins at 10.
  CHECK(marks(10, 20, 0).swap_forward == flags{0, 0, 1, 0, 0});
  CHECK(marks(11, 20, 0).swap_forward == flags{0, 0, 1, 1, 0});
  CHECK(marks(0, 20, 0).swap_forward == flags{0, 0, 0, 0, 0});
  // Backward stages 3: 0-8, 2: 8-28, 1: 28-48; the copy in ends at 28.
  CHECK(marks(10, 20, 0).swap_backward == flags{0, 0, 1, 0, 0});
  CHECK(marks(10, 21, 0).swap_backward == flags{0, 0, 1, 1, 0});
  CHECK(marks(10, 99, 0).swap_backward == flags{0, 0, 1, 1, 0});
  CHECK(marks(10, 0, 0).swap_backward == flags{0, 0, 0, 0, 0});
  // Block 2 runs again: stage 2 is 8-38, and the copy in ends at 38.
  CHECK(marks(10, 30, 1).swap_backward == flags{0, 0, 1, 0, 0});
  CHECK(marks(10, 31, 1).swap_backward == flags{0, 0, 1, 1, 0});
}

TEST_CASE("copies in queue up before their deadlines") {
  // Backward stages 4: 0-20, 3: 20-40, 2: 40-60, 1: 60-80. Block 1 is due at 60, block 3 at 20.
  cost::paper_job j = row(4, 15, 15);
  REQUIRE(j.interval == 2);
  // 45-60 and 5-20
  CHECK(cost::make_paper_plan(j, {.swap = 2}).swap_backward == flags{0, 0, 1, 0, 1, 0});
  j.blocks[0].swap_in = {45};
  // 15-60, so that block 3 comes at 0-15
  CHECK(cost::make_paper_plan(j, {.swap = 2}).swap_backward == flags{0, 0, 1, 1, 1, 0});
}

TEST_CASE("nothing is touched when nothing is swapped") {
  auto const p = cost::make_paper_plan(test::three_chunks(), {.checkpoint = 3});
  CHECK(p.swap_forward == flags(5, 0));
  CHECK(p.swap_backward == flags(5, 0));
}

TEST_CASE("more persistent chunks than there are is a bug") {
  test::throwing_contracts const contracts;
  CHECK_THROWS_AS(cost::make_paper_plan(test::three_chunks(), {.persist = 4}),
                  test::contract_broken);
}

static_assert(cost::most_swapped(row(8, 25, 25)) == 2);

}  // namespace

}  // namespace paper_plan_test
