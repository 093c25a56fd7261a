// SPDX-License-Identifier: Apache-2.0
#pragma once
// Jobs whose steps are cut into several programs, at random, and what happens to damaged ones.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/schedule/ranked_subjects.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

namespace protrain::test::cut {

// What all of these tests speak of.
using schedule::opcode;
using schedule::program;
using schedule::rejection;
using schedule::role;
using schedule::segment;
using test::erase;
using test::left_over;
using test::of;
using test::on;
using test::subject;
using test::tally;
using test::twice;

inline constexpr std::uint64_t first_seed = 80'000;
inline constexpr std::uint64_t ranks = 3;

inline constexpr std::array cut_parts{
    segment::first, segment::first_resumed, segment::middle, segment::last};
/// After which the step isn't over.
inline constexpr std::array open_parts{segment::first, segment::first_resumed, segment::middle};
/// Before which it has begun.
inline constexpr std::array later_parts{segment::middle, segment::last};
inline constexpr std::array beginning_parts{segment::first, segment::first_resumed};

inline std::vector<program> compile_all(subject const& s, std::uint32_t unroll) {
  schedule::knobs k = s.knobs;
  k.unroll = unroll;
  auto all = schedule::compile_segments(s.facts, s.layout, k);
  REQUIRE(all.has_value());
  return *std::move(all);
}

/// One and three ranks, with and without updates that are left to the next step, in turns.
/// `segments` are there for `compile_all` to fill.
inline subject make_job(std::uint64_t seed) {
  test::random_source r(seed);
  subject s{.facts = test::random_trace(r), .dice = test::random_source(~seed)};
  s.facts.job.world = seed % 2 == 0 ? 1 : ranks;
  s.layout = test::random_layout(r, s.facts);
  s.knobs = test::random_knobs(r, s.facts, s.layout);
  bool const defers = seed / 2 % 2 == 0;
  if (defers || s.dice.chance(30)) {
    s.knobs.time = update::timing::before_next_use;
    s.knobs.defer = !defers ? 0 : s.dice.chance(50) ? 99 : s.dice.between32(1, 3);
  }
  return s;
}

/// A step that is cut, at random.
inline subject make_subject(std::uint64_t seed) {
  subject s = make_job(seed);
  s.facts.job.accumulate = s.dice.between(2, 9);
  auto const most = static_cast<std::uint32_t>(s.facts.job.accumulate) - 1;
  // Three programs and more take an unroll of less than half the step.
  s.knobs.unroll = s.dice.between32(1, s.dice.chance(60) ? std::max(1U, most / 2) : most);
  s.segments = compile_all(s, s.knobs.unroll);
  s.p = s.segments[s.dice.between(0, s.segments.size() - 1)];
  return s;
}

/// One whose middle runs three times, two micro-batches each.
inline subject make_long_subject(std::uint64_t seed) {
  subject s = make_job(seed);
  s.facts.job.accumulate = s.dice.between(9, 10);
  s.knobs.unroll = 2;
  s.segments = compile_all(s, s.knobs.unroll);
  s.p = *s.find(segment::middle);
  REQUIRE(s.p.times == 3);
  return s;
}

/// The same program with operands where `rank` finds them, the `nth` time that it runs.
inline program seen_by(program p, std::uint64_t rank, std::uint64_t nth) {
  std::uint64_t const before = p.before + nth * p.micro_batches;
  for (schedule::operand& o : p.operands) {
    o.offset += rank * o.stride + before * o.advance;
    o.stride = 0;
    o.advance = 0;
  }
  return p;
}

/// Damages a segment of one of `parts`.
template <std::size_t N, class Damage>
auto in(std::array<segment, N> const& parts, Damage const& damage) {
  return [=](subject& s, program& q) {
    std::vector<program const*> found;
    for (segment const part : parts) {
      if (program const* const p = s.find(part); p != nullptr) {
        found.push_back(p);
      }
    }
    if (found.empty()) {
      return false;
    }
    q = *found[s.dice.between(0, found.size() - 1)];
    return damage(s, q);
  };
}

template <class Damage>
auto in(segment part, Damage const& damage) {
  return in(std::array{part}, damage);
}

template <class Damage>
void refuse(char const* kind, std::initializer_list<rejection> expected, Damage const& damage) {
  test::refuse_each(kind, expected, first_seed, make_subject, damage);
}

/// The job's segments, with `q` in place of the one that it was.
inline std::vector<program> replaced(subject const& s, program const& q) {
  std::vector<program> all = s.segments;
  for (program& p : all) {
    if (p.part == q.part) {
      p = q;
    }
  }
  return all;
}

/// What verify_segments says of the damaged program among the others.
inline constexpr auto together = [](subject const& s, program const& q) {
  return s.verify_all(replaced(s, q));
};

/// Mutants that may be sound by themselves: segments of another cut or of other memory.
template <class Damage>
void refuse_together(char const* kind,
                     std::initializer_list<rejection> expected,
                     Damage const& damage) {
  test::refuse_each(kind, expected, first_seed, make_subject, damage, together);
}

/// Of allocations that were placed: their largest end.
inline std::uint64_t extent(program const& p, space where) {
  std::uint64_t end = 0;
  for (schedule::allocation const& a : p.allocations) {
    end = std::max(end, a.where == where ? a.offset + granules(a.bytes) : 0);
  }
  return end;
}

inline void shuffle(test::random_source& dice, std::vector<program>& all) {
  for (std::size_t i = all.size(); i > 1; --i) {
    std::swap(all[i - 1], all[dice.between(0, i - 1)]);
  }
}

}  // namespace protrain::test::cut
