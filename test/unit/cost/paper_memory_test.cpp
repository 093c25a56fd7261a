// SPDX-License-Identifier: Apache-2.0
// Equations (8) to (11) of the paper on three blocks of two operators, with the arithmetic beside
// each number.

#include "protrain/cost/paper_memory.hpp"

#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "test/support/contract.hpp"
#include "test/unit/cost/three_chunks.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>

namespace paper_memory_test {

namespace {

using namespace protrain;

/// Chunks and blocks of three_chunks(), with bytes.
constexpr cost::paper_job three_blocks() {
  cost::paper_job j = test::three_chunks();
  j.forward_end = {100};
  j.blocks[0].swap_saving = {40};
  j.blocks[1].swap_saving = {50};
  j.blocks[2].swap_saving = {60};
  j.blocks[0].checkpoint_saving = {36};
  j.blocks[1].checkpoint_saving = {45};
  j.blocks[2].checkpoint_saving = {60};
  // block, first, prior current and peak, own current and peak, M_act
  j.operators = {{2, true, 5, 8, -3, 20, {25}},
                 {2, false, 0, 0, 2, 10, {35}},
                 {1, true, 1, 90, -4, 30, {20}},
                 {1, false, 0, 2, 0, 12, {30}},
                 {0, true, -2, 0, 1, 40, {15}},
                 {0, false, 0, 0, -6, 9, {25}}};
  j.chunks[0].persistent = {10};
  j.chunks[1].persistent = {20};
  j.chunks[2].persistent = {30};
  j.buffer = {7};
  return j;
}

/// M_cur and M_peak by operator, from 0.
struct walk {
  std::uint64_t current[7] = {};
  std::uint64_t peak[7] = {};
};

constexpr walk walk_of(cost::paper_numbers const& n) {
  cost::paper_job const j = three_blocks();
  cost::paper_plan const p = cost::make_paper_plan(j, n);
  walk out{};
  bytes current = cost::current_memory_at_start(j, p);
  bytes peak = current;
  out.current[0] = current.value;
  out.peak[0] = peak.value;
  for (std::size_t i = 1; i <= 6; ++i) {
    peak = cost::peak_memory(j, p, i, current, peak);
    current = cost::current_memory(j, p, i, current);
    out.current[i] = current.value;
    out.peak[i] = peak.value;
  }
  return out;
}

TEST_CASE("(8): what forward leaves") {
  CHECK(walk_of({}).current[0] == 100 + (25 + 35 + 20 + 30 + 15 + 25));
  // Of three blocks, the first is swapped and the second checkpointed.
  CHECK(walk_of({.swap = 1, .checkpoint = 1}).current[0] == 250 - 40 - 45);
  CHECK(walk_of({.checkpoint = 3}).current[0] == 250 - 36 - 45 - 60);
}

TEST_CASE("(9) and (10), everything kept") {
  walk const w = walk_of({});
  CHECK(w.current[1] == 250 + 5 - 3 - 25);
  CHECK(w.peak[1] == 250 + 5 + 20);
  CHECK(w.current[2] == 227 + 0 + 2 - 35);
  CHECK(w.peak[2] == 275);
  CHECK(w.current[3] == 194 + 1 - 4 - 20);
  CHECK(w.peak[3] == 194 + 90);
  CHECK(w.current[4] == 171 + 0 + 0 - 30);
  CHECK(w.current[5] == 141 - 2 + 1 - 15);
  CHECK(w.current[6] == 125 + 0 - 6 - 25);
  CHECK(w.peak[6] == 284);
}

TEST_CASE("(9) and (10), one block swapped, one checkpointed, one kept") {
  walk const w = walk_of({.swap = 1, .checkpoint = 1});
  CHECK(w.current[1] == 165 + 5 - 3 - 25);
  CHECK(w.peak[1] == 165 + 5 + 20);
  CHECK(w.current[2] == 142 + 0 + 2 - 35);
  // The checkpointed block's operators free nothing; its first one finds it rebuilt.
  CHECK(w.current[3] == 109 + 1 - 4);
  CHECK(w.peak[3] == 109 + 90);  // above 109 + 1 + 30 + 45
  CHECK(w.current[4] == 106);
  // Nor do the swapped block's.
  CHECK(w.current[5] == 106 - 2 + 1);
  CHECK(w.current[6] == 105 - 6);
  CHECK(w.peak[6] == 199);
}

TEST_CASE("(10): only the first operator of a checkpointed block counts the rebuilt bytes") {
  cost::paper_job j = three_blocks();
  cost::paper_plan const p = cost::make_paper_plan(j, {.swap = 1, .checkpoint = 1});
  j.operators[2].peak_prior = 0;
  CHECK(cost::peak_memory(j, p, 3, {109}, {}) == bytes{109 + 1 + 30 + 45});
  CHECK(cost::peak_memory(j, p, 4, {106}, {}) == bytes{106 + 12});
  j.operators[2].first = false;
  CHECK(cost::peak_memory(j, p, 3, {109}, {}) == bytes{109 + 1 + 30});
  CHECK(cost::peak_memory(j, p, 1, {165}, {}) == bytes{165 + 5 + 20});
  CHECK(cost::peak_memory(j, p, 1, {165}, {999}) == bytes{999});
}

TEST_CASE("(11): chunks are added, and alpha times the sum is rounded up") {
  cost::paper_job j = three_blocks();
  auto const peak = [&](cost::paper_numbers const& n) {
    return cost::peak_memory(j, cost::make_paper_plan(j, n)).value;
  };
  CHECK(cost::chunk_memory(j, {.persist = 2, .buffer = 1}) == bytes{10 + 20 + 7});
  CHECK(cost::chunk_memory(j, {.persist = 3}) == bytes{10 + 20 + 30});
  CHECK(cost::chunk_memory(j, {}) == bytes{0});
  // (199 + 37) * 1.1 = 259.6
  CHECK(peak({.persist = 2, .buffer = 1, .swap = 1, .checkpoint = 1}) == 260);
  j.alpha = 1000;
  CHECK(peak({.persist = 2, .buffer = 1, .swap = 1, .checkpoint = 1}) == 236);
  CHECK(peak({}) == 284);
}

TEST_CASE("(11): the largest oversize chunk that moves has a slot") {
  cost::paper_job j = three_blocks();
  j.chunks[1].own_slot = {15};
  j.chunks[2].own_slot = {4};
  CHECK(cost::chunk_memory(j, {.persist = 0, .buffer = 2}) == bytes{14 + 15});
  CHECK(cost::chunk_memory(j, {.persist = 2}) == bytes{10 + 20 + 4});
  CHECK(cost::chunk_memory(j, {.persist = 3}) == bytes{60});
}

TEST_CASE("memory never becomes negative, and operators are counted from 1") {
  test::throwing_contracts const contracts;
  cost::paper_job const j = three_blocks();
  cost::paper_plan const p = cost::make_paper_plan(j, {});
  CHECK_THROWS_AS(cost::current_memory(j, p, 6, {30}), test::contract_broken);
  CHECK(cost::current_memory(j, p, 6, {31}) == bytes{0});
  CHECK_THROWS_AS(cost::current_memory(j, p, 0, {100}), test::contract_broken);
  CHECK_THROWS_AS(cost::current_memory(j, p, 7, {100}), test::contract_broken);
}

static_assert(walk_of({}).peak[6] == 284);
static_assert(walk_of({.swap = 1, .checkpoint = 1}).peak[6] == 199);

}  // namespace

}  // namespace paper_memory_test
