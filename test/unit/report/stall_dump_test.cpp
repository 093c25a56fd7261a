// SPDX-License-Identifier: Apache-2.0
// What a step hangs on, as text.

#include "protrain/report/stall_dump.hpp"

#include "protrain/runtime/stall.hpp"

#include <doctest/doctest.h>

#include <string>

namespace stall_dump_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders

namespace {

using runtime::queue_doing;
using schedule::opcode;

trace::trace facts() {
  trace::trace t;
  t.shapes = {{.name = "h"}};
  t.blocks = {shape_id{0}, shape_id{0}};
  return t;
}

/// Compute waits for the reduction, in which rank 2 is missing.
runtime::stall missing_rank() {
  runtime::stall s{.rank = 1, .seconds = 0.5};
  for (std::size_t q = 0; q < queue_count; ++q) {
    s.queues[q].queue = static_cast<queue_id>(q);
  }
  schedule::instruction const reduce{.op = opcode::reduce, .queue = queue_id::reduce, .chunk = {3}};
  s.queues[0].doing = queue_doing::waits;
  s.queues[0].head = {9, {.op = opcode::backward, .block = {1}}};
  s.queues[0].waits_for = {{7, reduce}};
  s.queues[0].seconds = 0.75;
  s.queues[4].doing = queue_doing::runs;
  s.queues[4].head = {7, reduce};
  s.queues[4].ranks = {2};
  s.queues[4].seconds = 0.5;
  return s;
}

}  // namespace

TEST_CASE("a line per queue and what it waits for; a star at the one to look at first") {
  CHECK(report::stall_dump(missing_rank(), facts()) ==
        "rank 1, step: no queue got on for 0.500 s\n"
        "  compute waits  instruction 9, backward of block 1 (h), micro-batch 0, for 0.750 s\n"
        "          for reduce instruction 7, reduce of chunk 3, micro-batch 0\n"
        "  h2d     is through\n"
        "  d2h     is through\n"
        "  gather  is through\n"
        "* reduce  runs   instruction 7, reduce of chunk 3, micro-batch 0, for 0.500 s, rank 2 "
        "is missing\n"
        "  cpu     is through\n");
}

TEST_CASE("the error names rank, queue, instruction, chunk and the rank that is missing") {
  runtime::stall_error const e(missing_rank(), facts());
  CHECK(std::string(e.what()) ==
        "rank 1: no queue got on for 500 ms: queue reduce runs reduce of chunk 3, micro-batch 0 "
        "(instruction 7 of step) and waits for rank 2");
  CHECK(e.rank() == 2);
  CHECK(e.chunk().value == 3);
  CHECK(e.state().rank == 1);
}

TEST_CASE("a queue that doesn't begin is to blame if no other runs") {
  runtime::stall s = missing_rank();
  s.queues[4].ranks.clear();
  s.queues[2].doing = queue_doing::stands;
  CHECK(s.culprit() == &s.queues[4]);
  s.queues[4].doing = queue_doing::nothing;
  CHECK(s.culprit() == &s.queues[2]);
  CHECK(runtime::stall_error(s, facts()).rank() == 1);
  s.queues[2].doing = queue_doing::nothing;
  CHECK(s.culprit() == nullptr);
  CHECK_FALSE(runtime::stall_error(s, facts()).chunk().valid());
}

}  // namespace stall_dump_test
