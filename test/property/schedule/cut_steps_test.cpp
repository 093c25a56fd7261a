// SPDX-License-Identifier: Apache-2.0
// Steps that are cut into several programs, undamaged: what they add up to.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/cut_subjects.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cut_steps_test {

namespace {

using namespace protrain;
using namespace test::cut;

TEST_CASE("cut steps are accepted for every rank, exactly within their extent") {
  std::array<std::uint64_t, schedule::segment_count> parts{};
  std::uint64_t repeated = 0;
  std::uint64_t shorter = 0;
  std::uint64_t const cases = test::scaled(400);
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    std::uint64_t device = 0;
    std::uint64_t host = 0;
    for (program const& p : s.segments) {
      CAPTURE(name_of(p.part));
      schedule::verdict const v = s.verify(p);
      CAPTURE(v.what);
      REQUIRE(v.ok);
      ++parts[static_cast<std::size_t>(p.part)];
      repeated += p.times > 1 ? 1U : 0U;
      shorter += p.part == segment::last && p.micro_batches < p.before ? 1U : 0U;
      device = std::max(device, schedule::memory_of(p, space::device).peak);
      host = std::max(host, schedule::memory_of(p, space::host).peak);
    }
    schedule::verdict const v = s.verify_all(s.segments);
    CAPTURE(v.what);
    REQUIRE(v.ok);
    REQUIRE(schedule::verify_segments(s.segments, s.facts, s.layout, device, host).ok);
    REQUIRE(schedule::verify_segments(s.segments, s.facts, s.layout, device, host - 1).reason ==
            rejection::over_budget);
  }
  for (segment const part : cut_parts) {
    CHECK(parts[static_cast<std::size_t>(part)] >= cases / 8);
  }
  CHECK(parts[static_cast<std::size_t>(segment::first)] == cases);
  CHECK(parts[static_cast<std::size_t>(segment::last)] == cases);
  CHECK(parts[static_cast<std::size_t>(segment::step)] == 0);
  CHECK(repeated >= cases / 20);
  CHECK(shorter >= cases / 20);
}

TEST_CASE("brute force agrees for every rank and every repetition") {
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    for (program const& p : s.segments) {
      REQUIRE_FALSE(test::overlaps(p));
      for (std::uint64_t rank = 0; rank < s.facts.job.world; ++rank) {
        for (std::uint64_t nth = 0; nth < p.times; ++nth) {
          REQUIRE_FALSE(test::races(seen_by(p, rank, nth)));
        }
      }
    }
  }
}

TEST_CASE("a step is cut into as few programs as its unroll allows, the last no larger") {
  for (std::uint32_t all = 1; all <= 200; ++all) {
    for (std::uint32_t unroll = 1; unroll <= 201; ++unroll) {
      schedule::cut const c = schedule::cut_step(all, unroll);
      std::uint32_t const programs = c.whole() ? 1 : c.middles + 2;
      REQUIRE(c.first * (c.middles + 1) + c.last == all);
      REQUIRE(c.whole() == (all <= unroll));
      REQUIRE(c.first <= unroll);
      REQUIRE(c.last <= c.first);
      REQUIRE((programs - 1) * unroll < all);
      REQUIRE(programs * unroll >= all);
    }
  }
}

/// What the programs of one step do, counted one after the other.
struct counted {
  std::uint64_t batches = 0;
  std::uint64_t losses = 0;
  std::uint64_t finishes = 0;
  std::vector<std::uint64_t> forwards{};   ///< by block
  std::vector<std::uint64_t> backwards{};  ///< by block
  std::vector<std::uint64_t> sums{};       ///< by chunk: contributions since its last update
  std::vector<std::uint64_t> updates{};    ///< by chunk: this step's own
  std::vector<std::uint64_t> left_over{};  ///< by chunk
  bool ordered = true;                     ///< batches and losses lie one after the other
};

/// The n-th batch or loss of the step lies `n` times its size from where the first does.
bool lies_at(subject const& s, schedule::operand const& o, std::uint64_t rank, std::uint64_t nth) {
  bool const several = s.facts.job.world > 1 && o.what == role::loss;
  std::uint64_t const own = several ? rank * s.facts.job.accumulate : 0;
  return o.offset == (own + nth) * o.bytes;
}

void count(subject const& s, program const& p, std::uint64_t rank, counted& sum) {
  for (schedule::instruction const& i : p.instructions) {
    auto const operands = p.operands_of(i);
    switch (i.op) {
      case opcode::batch_load:
        sum.ordered = sum.ordered && lies_at(s, operands[0], rank, sum.batches++);
        break;
      case opcode::loss_read:
        sum.ordered = sum.ordered && lies_at(s, operands[1], rank, sum.losses++);
        break;
      case opcode::forward:
        ++sum.forwards[i.block.index()];
        break;
      case opcode::backward:
        ++sum.backwards[i.block.index()];
        break;
      case opcode::accumulate:
        ++sum.sums[i.chunk.index()];
        break;
      case opcode::norm_finish:
        ++sum.finishes;
        break;
      case opcode::update:
        ++(i.version == 0 ? sum.left_over : sum.updates)[i.chunk.index()];
        break;
      case opcode::update_part: {
        std::uint64_t const shard = s.layout[i.chunk].elements / s.facts.job.world;
        bool const last = (i.part + 1) * p.part_elements[i.chunk.index()] >= shard;
        (i.version == 0 ? sum.left_over : sum.updates)[i.chunk.index()] += last ? 1U : 0U;
        break;
      }
      default:
        break;
    }
  }
}

/// All programs of a step, as rank `rank` runs them.
counted count_step(subject const& s, bool resumed, std::uint64_t rank) {
  counted sum;
  sum.forwards.assign(s.facts.blocks.size(), 0);
  sum.backwards.assign(s.facts.blocks.size(), 0);
  sum.sums.assign(s.layout.chunks.size(), 0);
  sum.updates = sum.sums;
  sum.left_over = sum.sums;
  segment const begins = resumed ? segment::first_resumed : segment::first;
  for (segment const part : {begins, segment::middle, segment::last}) {
    program const* const p = s.find(part);
    for (std::uint64_t nth = 0; p != nullptr && nth < p->times; ++nth) {
      count(s, seen_by(*p, rank, nth), rank, sum);
    }
  }
  return sum;
}

TEST_CASE("the programs of a step add up to all of its micro-batches, once each and in order") {
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(400); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    std::uint64_t const all = s.facts.job.accumulate;
    std::vector<std::uint64_t> spans(s.layout.chunks.size(), 0);
    for (schedule::gradient_span const& each : s.p.spans) {
      ++spans[each.chunk.index()];
    }
    for (bool const resumed : {false, true}) {
      if (resumed && s.find(segment::first_resumed) == nullptr) {
        continue;
      }
      counted const sum = count_step(s, resumed, s.facts.job.world - 1);
      REQUIRE(sum.ordered);
      REQUIRE(sum.batches == (s.facts.batch.value > 0 ? all : 0));
      REQUIRE(sum.losses == all);
      REQUIRE(sum.finishes == 1);
      REQUIRE(std::ranges::count(sum.forwards, all) == std::ssize(s.facts.blocks));
      REQUIRE(std::ranges::count(sum.backwards, all) == std::ssize(s.facts.blocks));
      for (std::size_t c = 0; c < spans.size(); ++c) {
        bool const deferred = s.p.deferred[c] != 0;
        REQUIRE(sum.sums[c] == spans[c] * all);
        REQUIRE(sum.updates[c] == (spans[c] > 0 && !deferred ? 1U : 0U));
        REQUIRE(sum.left_over[c] == (resumed && deferred ? 1U : 0U));
      }
    }
  }
}

TEST_CASE("every unroll of a job is accepted, and no program is larger than it says") {
  std::uint64_t whole = 0;
  std::uint64_t cut = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    for (std::uint32_t unroll = 1; unroll <= s.facts.job.accumulate; ++unroll) {
      CAPTURE(unroll);
      std::vector<program> const all = compile_all(s, unroll);
      REQUIRE(s.verify_all(all).ok);
      for (program const& p : all) {
        REQUIRE(p.micro_batches <= unroll);
        for (space const where : {space::device, space::host}) {
          REQUIRE(schedule::memory_of(p, where).peak == extent(p, where));
        }
        ++(schedule::whole(p.part) ? whole : cut);
      }
    }
  }
  CHECK(whole >= test::scaled(60));
  CHECK(cut > whole);
}

/// The instructions with what depends on the number of a step's micro-batches taken out: how long
/// the losses of all of them are.
std::vector<schedule::instruction> without_lengths(program const& p) {
  std::vector<schedule::instruction> out = p.instructions;
  for (schedule::instruction& i : out) {
    i.amount = i.op == opcode::loss_exchange ? 0 : i.amount;
  }
  return out;
}

TEST_CASE("programs don't grow with the micro-batches of a step") {
  constexpr std::array<std::array<std::uint64_t, 2>, 2> pairs{{{5, 1001}, {6, 1000}}};
  for (std::uint64_t seed = first_seed; seed < first_seed + test::scaled(60); ++seed) {
    CAPTURE(seed);
    subject s = make_job(seed);
    for (auto const [few, many] : pairs) {
      CAPTURE(many);
      s.facts.job.accumulate = few;
      std::vector<program> const a = compile_all(s, 2);
      s.facts.job.accumulate = many;
      std::vector<program> const b = compile_all(s, 2);
      REQUIRE(s.verify_all(b).ok);
      REQUIRE(a.size() == b.size());
      for (std::size_t i = 0; i < a.size(); ++i) {
        CAPTURE(name_of(a[i].part));
        REQUIRE(a[i].part == b[i].part);
        REQUIRE(a[i].micro_batches == b[i].micro_batches);
        REQUIRE(without_lengths(a[i]) == without_lengths(b[i]));
        REQUIRE(a[i].dependencies == b[i].dependencies);
        REQUIRE(a[i].operands.size() == b[i].operands.size());
        REQUIRE(a[i].allocations.size() == b[i].allocations.size());
        REQUIRE(schedule::memory_of(a[i], space::device) ==
                schedule::memory_of(b[i], space::device));
      }
    }
  }
}

}  // namespace

}  // namespace cut_steps_test
