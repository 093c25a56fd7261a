// SPDX-License-Identifier: Apache-2.0
// Every program that compile makes from a random job and random knobs is proven right, is the same
// when made again, and its memory report agrees with counting position by position.

#include "protrain/schedule/verify.hpp"

#include "protrain/chunk/eviction.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "test/support/any_policy.hpp"
#include "test/support/mutants.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

namespace verify_test {

namespace {

using namespace protrain;

constexpr std::uint64_t first_seed = 1000;

/// What is live at one position, counted one by one.
struct counted {
  std::uint64_t top = 0;
  std::array<std::uint64_t, category_count> bytes{};
};

counted count(schedule::program const& p, space where, std::uint32_t at) {
  counted out;
  std::uint64_t rounded = 0;
  for (schedule::allocation const& a : p.allocations) {
    if (a.where == where && a.begin <= at && at < a.end) {
      out.top = std::max(out.top, a.offset + granules(a.bytes));
      out.bytes[static_cast<std::size_t>(a.what)] += a.bytes;
      out.bytes[static_cast<std::size_t>(category::padding)] += granules(a.bytes) - a.bytes;
      rounded += granules(a.bytes);
    }
  }
  out.bytes[static_cast<std::size_t>(category::fragmentation)] = out.top - rounded;
  return out;
}

schedule::memory_report count_all(schedule::program const& p, space where) {
  schedule::memory_report out;
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    counted const now = count(p, where, i);
    for (std::size_t c = 0; c < category_count; ++c) {
      out.maximum[c] = std::max(out.maximum[c], now.bytes[c]);
    }
    if (now.top > out.peak) {
      out.peak = now.top;
      out.at_peak = now.bytes;
      out.position = i;
    }
  }
  return out;
}

TEST_CASE("random programs are accepted, exactly within their extent") {
  std::uint64_t const cases = test::scaled(10'000);
  std::uint64_t instructions = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs, c.eviction);
    REQUIRE(p.has_value());
    instructions += p->instructions.size();
    std::uint64_t const device = schedule::memory_of(*p, space::device).peak;
    std::uint64_t const host = schedule::memory_of(*p, space::host).peak;
    schedule::verdict const v = schedule::verify(*p, c.facts, c.layout, device, host);
    CAPTURE(v.what);
    CAPTURE(v.instruction);
    REQUIRE(v.ok);
    if (device > 0) {
      REQUIRE(schedule::verify(*p, c.facts, c.layout, device - 1, host).reason ==
              schedule::rejection::over_budget);
    }
    REQUIRE(schedule::verify(*p, c.facts, c.layout, device, host - 1).reason ==
            schedule::rejection::over_budget);
  }
  std::printf("%llu programs from seed %llu, %llu instructions\n",
              static_cast<unsigned long long>(cases),
              static_cast<unsigned long long>(first_seed),
              static_cast<unsigned long long>(instructions));
  CHECK(instructions > 50 * cases);
}

TEST_CASE("brute force agrees that accepted programs have no race and no overlap") {
  for (std::uint64_t seed = 0; seed < test::scaled(500); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs, c.eviction);
    REQUIRE(p.has_value());
    REQUIRE_FALSE(test::races(*p));
    REQUIRE_FALSE(test::overlaps(*p));
  }
}

TEST_CASE("memory reports agree with counting, and their categories sum to the peak") {
  for (std::uint64_t seed = 0; seed < test::scaled(1000); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs, c.eviction);
    REQUIRE(p.has_value());
    for (space const where : {space::device, space::host}) {
      schedule::memory_report const r = schedule::memory_of(*p, where);
      REQUIRE(r == count_all(*p, where));
      REQUIRE(std::accumulate(r.at_peak.begin(), r.at_peak.end(), std::uint64_t{0}) == r.peak);
    }
  }
}

TEST_CASE("equal inputs give equal programs; times and sources don't matter") {
  for (std::uint64_t seed = 0; seed < test::scaled(300); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs, c.eviction);
    test::random_case other = test::make_case(seed);
    other.facts.from = trace::source::measured;
    for (trace::block_shape& s : other.facts.shapes) {
      s.forward = s.forward + picoseconds{7};
      s.backward = {};
    }
    auto const q = schedule::compile(other.facts, other.layout, other.knobs, other.eviction);
    REQUIRE(p.has_value());
    REQUIRE(q.has_value());
    REQUIRE(*p == *q);
  }
}

// --- several ranks, several segments -------------------------------------------------------------

constexpr std::uint64_t unlimited = ~std::uint64_t{0};

std::vector<schedule::program> segments_of(test::random_case const& c) {
  auto all = schedule::compile_segments(c.facts, c.layout, c.knobs, c.eviction);
  REQUIRE(all.has_value());
  return *std::move(all);
}

TEST_CASE("every segment of ranked jobs is accepted for every rank, exactly within its extent") {
  std::uint64_t const cases = test::scaled(1500);
  std::array<std::uint64_t, schedule::segment_count> parts{};
  std::uint64_t ranks = 0;
  for (std::uint64_t seed = first_seed; seed < first_seed + cases; ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_ranked_case(seed);
    ranks += c.facts.job.world;
    auto const all = segments_of(c);
    std::uint64_t device = 0;
    std::uint64_t host = 0;
    for (schedule::program const& p : all) {
      ++parts[static_cast<std::size_t>(p.part)];
      device = std::max(device, schedule::memory_of(p, space::device).peak);
      host = std::max(host, schedule::memory_of(p, space::host).peak);
    }
    for (std::uint64_t rank = 0; rank < c.facts.job.world; ++rank) {
      CAPTURE(rank);
      schedule::segment which{};
      schedule::verdict const v =
          schedule::verify_segments(all, c.facts, c.layout, device, host, rank, &which);
      CAPTURE(v.what);
      CAPTURE(name_of(which));
      REQUIRE(v.ok);
    }
    REQUIRE(schedule::verify_segments(all, c.facts, c.layout, device, host - 1).reason ==
            schedule::rejection::over_budget);
  }
  for (std::uint64_t const n : parts) {
    CHECK(n > cases / 20);
  }
  CHECK(ranks > 2 * cases);
}

TEST_CASE("brute force agrees for every rank and segment") {
  for (std::uint64_t seed = 0; seed < test::scaled(150); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_ranked_case(seed);
    for (schedule::program p : segments_of(c)) {
      REQUIRE_FALSE(test::overlaps(p));
      // Operands of rank 0, then of each next one.
      for (std::uint64_t rank = 0; rank < c.facts.job.world; ++rank) {
        REQUIRE_FALSE(test::races(p));
        for (schedule::operand& o : p.operands) {
          o.offset += o.stride;
        }
      }
    }
  }
}

TEST_CASE("memory reports of every segment agree with counting") {
  for (std::uint64_t seed = 0; seed < test::scaled(400); ++seed) {
    CAPTURE(seed);
    for (schedule::program const& p : segments_of(test::make_ranked_case(seed))) {
      for (space const where : {space::device, space::host}) {
        schedule::memory_report const r = schedule::memory_of(p, where);
        REQUIRE(r == count_all(p, where));
        REQUIRE(std::accumulate(r.at_peak.begin(), r.at_peak.end(), std::uint64_t{0}) == r.peak);
      }
    }
  }
}

/// Segments of one set, but the last of another: what verify_segments says.
schedule::verdict mixed(test::random_case const& c, test::random_case const& other) {
  auto all = segments_of(c);
  auto const others = segments_of(other);
  all.back() = others.back();
  return schedule::verify_segments(
      all, c.facts, c.layout, unlimited, unlimited, c.facts.job.world - 1);
}

TEST_CASE("segments of different knobs are refused") {
  std::uint64_t moved = 0;
  std::uint64_t deferred = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(600); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_ranked_case(seed);
    REQUIRE(mixed(c, c).ok);
    for (std::size_t k = 0; k < c.layout.chunks.size(); ++k) {
      if (c.layout.chunks[k].elements == 0) {
        continue;
      }
      test::random_case other = c;
      bool const stays = c.knobs.persistent[k] != 0;
      other.knobs.persistent[k] = stays ? 0 : 1;
      other.knobs.sites[k] = stays ? update::site::cpu : update::site::gpu;
      other.knobs.buffers = schedule::most_buffers(other.layout, other.knobs.persistent);
      REQUIRE(mixed(c, other).reason == schedule::rejection::malformed);
      ++moved;
    }
    test::random_case other = c;
    other.knobs.time = update::timing::before_next_use;
    other.knobs.defer = c.knobs.defer == 0 ? 99 : c.knobs.defer > 1 ? 1 : 0;
    if (segments_of(c).front().deferred != segments_of(other).front().deferred) {
      REQUIRE(mixed(c, other).reason == schedule::rejection::malformed);
      ++deferred;
    }
  }
  CHECK(moved >= test::scaled(600));
  CHECK(deferred >= test::scaled(100));
}

/// An eviction that obeys the law and nothing else: verify must hold whatever it chooses.
struct last_one {
  using policy_tag = chunk::eviction_tag;
  constexpr std::size_t victim(std::span<chunk::resident const> in) const noexcept {
    return in.size() - 1;
  }
  bool operator==(last_one const&) const = default;
};

TEST_CASE("programs stay right under another eviction policy") {
  std::uint64_t differ = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(1000); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const p = schedule::compile(c.facts, c.layout, c.knobs, last_one{});
    REQUIRE(p.has_value());
    REQUIRE(schedule::verify(*p, c.facts, c.layout).ok);
    differ += *p == *schedule::compile(c.facts, c.layout, c.knobs) ? 0U : 1U;
  }
  CHECK(differ > 0);
}

/// Bytes that a program uploads of values.
std::uint64_t uploaded(schedule::program const& p) {
  std::uint64_t sum = 0;
  for (schedule::instruction const& i : p.instructions) {
    sum += i.op == schedule::opcode::upload ? i.amount : 0;
  }
  return sum;
}

TEST_CASE("what is needed again last leaves: nothing uploads less, summed over many programs") {
  std::uint64_t differ = 0;
  std::uint64_t sums[test::eviction_kinds] = {};
  for (std::uint64_t seed = 0; seed < test::scaled(1000); ++seed) {
    test::random_case const c = test::make_case(seed);
    for (std::uint32_t kind = 0; kind < test::eviction_kinds; ++kind) {
      auto const p = schedule::compile(c.facts, c.layout, c.knobs, test::any_eviction{kind});
      REQUIRE(p.has_value());
      sums[kind] += uploaded(*p);
    }
    auto const paper = schedule::compile(c.facts, c.layout, c.knobs);
    auto const belady = schedule::compile(c.facts, c.layout, c.knobs, chunk::furthest_next_use{});
    differ += *paper == *belady ? 0U : 1U;
  }
  MESSAGE("uploads in bytes: execution order ",
          sums[0],
          ", furthest next use ",
          sums[1],
          ", least recently used ",
          sums[2],
          "; programs that differ: ",
          differ);
  CHECK(differ > 0);
  CHECK(sums[1] <= sums[0]);
  CHECK(sums[1] <= sums[2]);
}

}  // namespace

}  // namespace verify_test
