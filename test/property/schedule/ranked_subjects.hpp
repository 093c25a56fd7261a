// SPDX-License-Identifier: Apache-2.0
#pragma once
// Segments of a job over several ranks that are there to be damaged, and the count of why the
// damaged ones were refused.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <limits>
#include <map>
#include <string>
#include <vector>

namespace protrain::test {

/// All segments of a job, one of them to be damaged, and where the dice for that come from.
struct subject {
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

  trace::trace facts{};
  chunk::layout layout{};
  schedule::knobs knobs{};
  std::vector<schedule::program> segments{};
  schedule::program p{};
  random_source dice{0};

  schedule::verdict verify(schedule::program const& q, std::uint64_t rank) const {
    return schedule::verify(q, facts, layout, unlimited, unlimited, rank);
  }
  /// What the first rank that objects says.
  schedule::verdict verify(schedule::program const& q) const {
    for (std::uint64_t rank = 0; rank < facts.job.world; ++rank) {
      if (schedule::verdict const v = verify(q, rank); !v.ok) {
        return v;
      }
    }
    return {};
  }
  /// Likewise, of programs that are said to be the segments of the job.
  schedule::verdict verify_all(std::vector<schedule::program> const& all) const {
    for (std::uint64_t rank = 0; rank < facts.job.world; ++rank) {
      schedule::verdict const v =
          schedule::verify_segments(all, facts, layout, unlimited, unlimited, rank);
      if (!v.ok) {
        return v;
      }
    }
    return {};
  }
  /// One of `from`, which isn't empty.
  std::uint32_t pick(std::vector<std::uint32_t> const& from) {
    return from[dice.between(0, from.size() - 1)];
  }
  /// Null where the job has none.
  schedule::program const* find(schedule::segment part) const {
    for (schedule::program const& q : segments) {
      if (q.part == part) {
        return &q;
      }
    }
    return nullptr;
  }
};

/// How often mutants of one kind were refused, by reason, and how many were accepted.
struct tally {
  std::map<schedule::rejection, std::uint64_t> by{};

  void add(schedule::verdict const& v) { ++by[v.reason]; }
  std::uint64_t accepted() const {
    auto const found = by.find(schedule::rejection::none);
    return found == by.end() ? 0 : found->second;
  }
  std::uint64_t rejected() const {
    std::uint64_t sum = 0;
    for (auto const& [reason, count] : by) {
      sum += count;
    }
    return sum - accepted();
  }
  void print(char const* kind) const {
    std::printf("%-36s", kind);
    for (auto const& [reason, count] : by) {
      std::printf(
          " %s %llu", std::string(name_of(reason)).c_str(), static_cast<unsigned long long>(count));
    }
    std::printf("\n");
  }
};

/// What verify says of the damaged program alone.
inline constexpr auto alone = [](subject const& s, schedule::program const& q) {
  return s.verify(q);
};

/// Every mutant that `damage(subject, program)` makes of a subject of `make(seed)` is refused for
/// one of the reasons, by `judge(subject, program)`; `damage` answers false where a program has
/// nothing to damage.
template <class Make, class Damage, class Judge = decltype(alone)>
void refuse_each(char const* kind,
                 std::initializer_list<schedule::rejection> expected,
                 std::uint64_t first_seed,
                 Make const& make,
                 Damage const& damage,
                 Judge const& judge = alone) {
  tally sum;
  std::uint64_t const cases = scaled(400);
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(kind);
    CAPTURE(seed);
    subject s = make(seed);
    schedule::program q = s.p;
    if (!damage(s, q)) {
      continue;
    }
    schedule::verdict const v = judge(s, q);
    CAPTURE(v.what);
    CAPTURE(name_of(v.reason));
    CAPTURE(name_of(q.part));
    CHECK(std::ranges::find(expected, v.reason) != expected.end());
    sum.add(v);
  }
  sum.print(kind);
  CHECK(sum.accepted() == 0);
  CHECK(sum.rejected() >= cases / 8);
}

/// Changes one instruction that `wanted` accepts.
template <class Wanted, class Change>
auto on(Wanted const& wanted, Change const& change) {
  return [=](subject& s, schedule::program& q) {
    auto const at = positions(q, wanted);
    if (at.empty()) {
      return false;
    }
    editable e(q);
    if (!change(s, e, s.pick(at))) {
      return false;
    }
    q = e.program();
    return true;
  };
}

inline auto of(schedule::opcode op) {
  return [op](schedule::instruction const& i) { return i.op == op; };
}
inline bool left_over(schedule::instruction const& i) {
  return i.op == schedule::opcode::update && i.version == 0;
}
inline constexpr auto erase = [](subject&, editable& e, std::uint32_t at) {
  e.erase(at);
  return true;
};
inline constexpr auto twice = [](subject&, editable& e, std::uint32_t at) {
  e.duplicate(at);
  return true;
};

/// Puts `n`, whose operands lie in carried memory, before everything else or after it.
inline void insert_alone(editable& e, editable::node n, bool at_end) {
  n.dependencies.clear();
  auto const end = static_cast<std::uint32_t>(e.nodes.size());
  for (std::uint32_t i = 0; at_end && i < end; ++i) {
    n.dependencies.push_back(i);
  }
  for (schedule::allocation& a : e.frame.allocations) {
    a.begin += !at_end && !a.carried ? 1U : 0U;
    a.end += !at_end || a.carried ? 1U : 0U;
  }
  if (at_end) {
    e.nodes.push_back(n);
    return;
  }
  // Everything of every queue waits for it.
  for (editable::node& other : e.nodes) {
    for (std::uint32_t& d : other.dependencies) {
      ++d;
    }
    other.dependencies.push_back(0);
  }
  e.nodes.insert(e.nodes.begin(), n);
}

}  // namespace protrain::test
