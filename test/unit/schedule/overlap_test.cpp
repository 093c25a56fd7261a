// SPDX-License-Identifier: Apache-2.0
// What runs beside what: over ranks, a reduction is hidden by the pass behind the one it follows.

#include "protrain/core/queue.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace overlap_test {

namespace {

using namespace protrain;
using schedule::opcode;

/// All persistent, a chunk for each block.
schedule::program compiled(std::uint64_t ranks, std::uint64_t accumulate) {
  trace::trace facts = test::small_trace(5);
  facts.job.world = ranks;
  facts.job.accumulate = accumulate;
  chunk::layout const layout = test::small_layout(facts);
  schedule::knobs const knobs = test::small_knobs(layout, 5, layout.chunks.size());
  auto p = schedule::compile(facts, layout, knobs);
  REQUIRE(p.has_value());
  schedule::verdict const v = schedule::verify(*p, facts, layout);
  INFO(v.what);
  REQUIRE(v.ok);
  return *p;
}

/// Instructions that have ended when `at` starts.
std::vector<bool> before(schedule::program const& p, std::uint32_t at) {
  std::vector<bool> marked(p.instructions.size(), false);
  std::array<bool, queue_count> whole{};
  marked[at] = true;
  for (std::uint32_t i = at + 1; i-- > 0;) {
    bool& all = whole[static_cast<std::size_t>(p.instructions[i].queue)];
    if (marked[i] || all) {
      marked[i] = true;
      all = true;
      for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
        marked[d] = true;
      }
    }
  }
  return marked;
}

/// Of all backward passes, those that wait for the reduction that was issued last before them.
std::size_t waiting(schedule::program const& p) {
  std::size_t out = 0;
  std::uint32_t reduce = ~std::uint32_t{0};
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    opcode const op = p.instructions[i].op;
    if (op == opcode::backward && reduce < i) {
      out += before(p, i)[reduce] ? 1U : 0U;
    }
    reduce = op == opcode::reduce ? i : reduce;
    reduce = op == opcode::forward ? ~std::uint32_t{0} : reduce;  // within one micro-batch
  }
  return out;
}

}  // namespace

TEST_CASE("over ranks no backward pass waits for the reduction right before it") {
  for (std::uint64_t const accumulate : {1U, 3U}) {
    CAPTURE(accumulate);
    CHECK(waiting(compiled(3, accumulate)) == 0);
    // On one rank there is nothing to hide.
    CHECK(waiting(compiled(1, accumulate)) > 0);
  }
}

}  // namespace overlap_test
