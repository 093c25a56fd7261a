// SPDX-License-Identifier: Apache-2.0
// The digest of programs: equal for equal programs, another one for every other field.

#include "protrain/schedule/digest.hpp"

#include "protrain/schedule/compile.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

namespace digest_test {

namespace {

using namespace protrain;
using schedule::program;

program sound() {
  trace::trace const facts = test::small_trace(3);
  chunk::layout const layout = test::small_layout(facts);
  program p = *schedule::compile(facts, layout, test::small_knobs(layout, 3, 1));
  p.spans[0].blocks.push_back({7});  // so that each list has a row to lose
  return p;
}

std::uint64_t digest_of(program const& p) { return schedule::digest({&p, 1}); }

TEST_CASE("every field of a program counts") {
  std::vector<std::function<void(program&)>> const edits{
      [](program& p) { ++p.fingerprint; },
      [](program& p) { p.part = schedule::segment::last; },
      [](program& p) { ++p.micro_batches; },
      [](program& p) { ++p.before; },
      [](program& p) { ++p.times; },
      [](program& p) { ++p.ranks; },
      [](program& p) { p.deferred[0] ^= 1U; },
      [](program& p) { p.deferred.push_back(0); },
      [](program& p) { ++p.part_elements[0]; },
      [](program& p) { p.part_elements.push_back(0); },
      [](program& p) { p.instructions[3].op = schedule::opcode::gather; },
      [](program& p) { p.instructions[3].queue = queue_id::reduce; },
      [](program& p) { ++p.instructions[3].micro_batch; },
      [](program& p) { ++p.instructions[3].block.value; },
      [](program& p) { ++p.instructions[3].chunk.value; },
      [](program& p) { ++p.instructions[3].span.value; },
      [](program& p) { ++p.instructions[3].version; },
      [](program& p) { ++p.instructions[3].part; },
      [](program& p) { ++p.instructions[3].level; },
      [](program& p) { ++p.instructions[3].amount; },
      [](program& p) { ++p.instructions[3].first_operand; },
      [](program& p) { ++p.instructions[3].operand_count; },
      [](program& p) { ++p.instructions[3].first_dependency; },
      [](program& p) { ++p.instructions[3].dependency_count; },
      [](program& p) { std::swap(p.instructions[3], p.instructions[4]); },
      [](program& p) { p.operands[2].what = schedule::role::report; },
      [](program& p) { p.operands[2].mode = schedule::access::read_write; },
      [](program& p) { ++p.operands[2].allocation.value; },
      [](program& p) { ++p.operands[2].offset; },
      [](program& p) { ++p.operands[2].bytes; },
      [](program& p) { ++p.operands[2].stride; },
      [](program& p) { ++p.operands[2].advance; },
      [](program& p) { ++p.operands[2].chunk.value; },
      [](program& p) { ++p.operands[2].span.value; },
      [](program& p) { p.dependencies.pop_back(); },
      [](program& p) { ++p.dependencies[0]; },
      [](program& p) {
        space& where = p.allocations[1].where;
        where = where == space::host ? space::device : space::host;
      },
      [](program& p) { p.allocations[1].what = category::swapped; },
      [](program& p) { p.allocations[1].carried ^= true; },
      [](program& p) { ++p.allocations[1].offset; },
      [](program& p) { ++p.allocations[1].bytes; },
      [](program& p) { ++p.allocations[1].begin; },
      [](program& p) { ++p.allocations[1].end; },
      [](program& p) { ++p.allocations[1].block.value; },
      [](program& p) { ++p.allocations[1].chunk.value; },
      [](program& p) { ++p.allocations[1].micro_batch; },
      [](program& p) { ++p.spans[0].chunk.value; },
      [](program& p) { ++p.spans[0].ordinal; },
      [](program& p) { ++p.spans[0].blocks[0].value; },
      [](program& p) { p.spans[0].blocks.pop_back(); },
      [](program& p) { ++p.spans[0].tensors[0].tensor; },
      [](program& p) { p.spans[0].tensors[0].first ^= true; },
      [](program& p) { p.spans[0].tensors.pop_back(); },
  };
  std::vector<std::uint64_t> seen{digest_of(sound())};
  CHECK(digest_of(sound()) == seen[0]);
  for (auto const& edit : edits) {
    program p = sound();
    edit(p);
    seen.push_back(digest_of(p));
  }
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
}

TEST_CASE("the number of programs and their order count") {
  std::vector<program> all{sound(), sound()};
  all[1].part = schedule::segment::evaluate;
  std::uint64_t const both = schedule::digest(all);
  std::swap(all[0], all[1]);
  CHECK(schedule::digest(all) != both);
  all.pop_back();
  CHECK(schedule::digest(all) != both);
  CHECK(schedule::digest({}) != schedule::digest(all));
}

static_assert(schedule::digest({}) != 0);

}  // namespace

}  // namespace digest_test
