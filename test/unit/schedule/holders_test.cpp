// SPDX-License-Identifier: Apache-2.0
// Who holds the bytes of a program: the sums are those of the memory report, to the byte.

#include "protrain/schedule/holders.hpp"

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace holders_test {

namespace {

using namespace protrain;
using schedule::holder;
using schedule::opcode;
using schedule::role;

std::array<std::uint64_t, category_count> summed(schedule::memory_holders const& m) {
  std::array<std::uint64_t, category_count> out{};
  std::uint64_t rounded = 0;
  for (holder const& h : m.all) {
    out[static_cast<std::size_t>(h.what)] += h.bytes;
    out[static_cast<std::size_t>(category::padding)] += granules(h.bytes) - h.bytes;
    rounded += granules(h.bytes);
  }
  out[static_cast<std::size_t>(category::fragmentation)] = m.top - rounded;
  return out;
}

/// The holders of every position agree with the report of the whole.
void check_every_position(schedule::program const& p, space where) {
  schedule::memory_report const all = schedule::memory_of(p, where);
  schedule::memory_holders const peak = schedule::holders_at_peak(p, where);
  REQUIRE(peak.top == all.peak);
  REQUIRE(peak.position == all.position);
  REQUIRE(peak.by_category == all.at_peak);
  std::array<std::uint64_t, category_count> most{};
  for (std::uint32_t i = 0; i <= p.instructions.size(); ++i) {
    schedule::memory_holders const m = schedule::holders(p, where, i);
    REQUIRE(summed(m) == m.by_category);
    REQUIRE(std::accumulate(m.by_category.begin(), m.by_category.end(), std::uint64_t{0}) == m.top);
    REQUIRE(m.top <= all.peak);
    REQUIRE((m.top < all.peak || i >= all.position));
    for (std::size_t c = 0; c < category_count; ++c) {
      most[c] = std::max(most[c], m.by_category[c]);
    }
  }
  CHECK(most == all.maximum);
}

TEST_CASE("at every position the holders sum to what the memory report says") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const programs = schedule::compile_segments(c.facts, c.layout, c.knobs);
    REQUIRE(programs.has_value());
    for (schedule::program const& p : *programs) {
      for (space const where : {space::device, space::host}) {
        check_every_position(p, where);
      }
    }
  }
}

struct small {
  trace::trace facts = test::small_trace(3);
  chunk::layout layout = test::small_layout(facts);
  schedule::program program{};

  explicit small(std::size_t persistent) {
    facts.job.clip = 1;
    auto p = schedule::compile(facts, layout, test::small_knobs(layout, 3, persistent));
    REQUIRE(p.has_value());
    program = *std::move(p);
  }
  std::uint32_t position(opcode op, std::uint32_t block) const {
    for (std::uint32_t i = 0; i < program.instructions.size(); ++i) {
      if (program.instructions[i].op == op && program.instructions[i].block.value == block) {
        return i;
      }
    }
    FAIL("no such instruction");
    return 0;
  }
  std::vector<holder> of(schedule::memory_holders const& m, role tensor) const {
    std::vector<holder> out;
    std::ranges::copy_if(
        m.all, std::back_inserter(out), [&](holder const& h) { return h.tensor == tensor; });
    return out;
  }
};

TEST_CASE("a holder says whose tensor it is, what, and since when") {
  small const s(0);
  std::uint32_t const at = s.position(opcode::backward, 2);
  auto const m = schedule::holders(s.program, space::device, at);
  CHECK(m.at == s.program.instructions[at]);
  CHECK(std::ranges::is_sorted(m.all, std::ranges::greater{}, &holder::bytes));

  auto const saved = s.of(m, role::saved);  // block 0 is kept, 1 checkpointed, 2 swapped
  REQUIRE(saved.size() == 2);
  auto const kept = std::ranges::find(saved, 0U, [](holder const& h) { return h.block.value; });
  REQUIRE(kept != saved.end());
  CHECK(kept->bytes == 4096);
  CHECK(kept->what == category::activations);
  CHECK(kept->since == s.position(opcode::forward, 0));
  CHECK(kept->born == opcode::forward);
  CHECK_FALSE(kept->carried);

  auto const dx = s.of(m, role::input_gradient);
  REQUIRE(dx.size() == 1);
  CHECK(dx[0].block.value == 2);
  CHECK(dx[0].bytes == 1024);
  CHECK(dx[0].what == category::boundaries);
  CHECK(s.of(m, role::scratch).size() == 1);
  CHECK(s.of(m, role::scratch)[0].since == at);
}

TEST_CASE("of a parameter buffer, the chunk that lies in it then") {
  small const s(0);
  for (std::uint32_t block = 0; block < 3; ++block) {
    for (opcode const op : {opcode::forward, opcode::backward}) {
      auto const m = schedule::holders(s.program, space::device, s.position(op, block));
      auto const buffers = s.of(m, role::value);
      REQUIRE(buffers.size() == 1);
      CHECK(buffers[0].what == category::parameter_buffers);
      CHECK(buffers[0].carried);
      CHECK(buffers[0].chunk.value == block);
    }
  }
}

TEST_CASE("the program that needs most, the first of equals") {
  std::vector<schedule::program> all(4);
  for (std::uint32_t i = 1; i < 4; ++i) {
    all[i].allocations = {{.bytes = i < 3 ? 600U : 512U, .end = 1}};
  }
  CHECK(schedule::peak_program(all, space::device) == 1);
  CHECK(schedule::peak_program(all, space::host) == 0);
}

TEST_CASE("in words") {
  small const s(3);
  std::uint32_t const at = s.position(opcode::backward, 0);
  auto const m = schedule::holders(s.program, space::device, at);
  std::string const line(schedule::summary(m, s.facts, 9).view());
  CAPTURE(line);
  CHECK(line.find("instruction " + std::to_string(at) +
                  " of step (backward of block 0 (block), micro-batch 0) holds " +
                  std::to_string(m.top) + " bytes of device memory, most of it 4096 bytes") == 0);
  CHECK(line.find("saved tensors of block 0 (block), micro-batch 0") != std::string::npos);
  CHECK(line.find("; ") != std::string::npos);
  schedule::instruction const reduce{.op = opcode::reduce, .micro_batch = 2, .chunk = {4}};
  CHECK(schedule::print(reduce, s.facts).view() == "reduce of chunk 4, micro-batch 2");
  CHECK(schedule::print(schedule::instruction{.op = opcode::norm_finish}, s.facts).view() ==
        "norm_finish");
}

constexpr bool exact_in_constant_evaluation() {
  trace::trace const facts = test::small_trace(2);
  chunk::layout const layout = test::small_layout(facts);
  auto const p = schedule::compile(facts, layout, test::small_knobs(layout, 2, 1));
  auto const m = schedule::holders_at_peak(*p, space::device);
  return m.by_category == schedule::memory_of(*p, space::device).at_peak &&
         !schedule::summary(m, facts).empty();
}
static_assert(exact_in_constant_evaluation());

}  // namespace

}  // namespace holders_test
