// SPDX-License-Identifier: Apache-2.0
// The search over save levels: equal to a loop over every division of the blocks, never slower than
// the same bundle without levels or with one level everywhere, and strings that read back.

#include "protrain/activation/assignment.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace levels_test {

namespace {

using namespace protrain;

constexpr auto with_levels = policies<>{}.with(activation::levels{});

/// Free blocks that have level `k`.
std::uint32_t holders(trace::trace const& t, std::size_t k) {
  std::uint32_t n = 0;
  for (shape_id const s : t.blocks) {
    trace::block_shape const& shape = t.shapes[s.index()];
    n += shape.pinned == trace::pin::free && shape.levels.size() >= k ? 1U : 0U;
  }
  return n;
}

/// Random, with a free block that has levels; activations as large as parameters, so that it pays to
/// save less.
test::planning_case make_case(std::uint64_t seed, std::size_t blocks) {
  constexpr std::uint64_t larger = 40;
  test::planning_case c = test::make_planning_case(seed, blocks);
  while (holders(c.facts, 1) == 0) {
    c = test::make_planning_case(seed += 1000, blocks);
  }
  for (trace::block_shape& s : c.facts.shapes) {
    s.saved = s.saved * larger;
    for (trace::save_level& level : s.levels) {
      level.saved = level.saved * larger;
      level.rebuilt = level.rebuilt * larger;
    }
  }
  return c;
}

/// Between what the plan that needs least memory takes, as far as a search without levels knows, and
/// what the fastest one takes.
plan::budget tight(test::random_source& r, test::planning_case const& c) {
  plan::budget out = test::everything();
  auto const fastest = plan::search(c.facts, c.machine, out);
  auto const none = plan::search(c.facts, c.machine, {.gpu = {0}, .host = out.host});
  REQUIRE(fastest.has_value());
  std::uint64_t const least = none ? 0 : none.failure().needs_device;
  out.gpu = {r.between(least, std::max(least, fastest->predicted.device.peak))};
  return out;
}

using answer = result<plan::plan, plan::infeasible>;

/// No slower, or the other one found nothing.
bool no_slower(answer const& mine, answer const& other) {
  return !other || (mine && mine->predicted.iteration <= other->predicted.iteration);
}

/// The fastest of all plans, each asked for by its numbers.
std::optional<picoseconds> exhaustive(test::planning_case const& c, plan::budget const& b) {
  std::optional<picoseconds> best;
  auto const chunks = plan::search(c.facts, c.machine, test::everything())->layout.chunks.size();
  std::uint32_t const free = activation::free_blocks(activation::pins_of(c.facts));
  plan::request r{.levels = plan::level_counts{}};
  auto const ask = [&] {
    answer const found = plan::make(c.facts, c.machine, b, with_levels, r);
    if (found && (!best || found->predicted.iteration < *best)) {
      best = found->predicted.iteration;
    }
  };
  auto& n = *r.levels;
  for (std::uint32_t p = 0; p <= chunks; ++p) {
    for (std::uint32_t swap = 0; swap <= free; ++swap) {
      for (std::uint32_t keep = 0; keep <= free; ++keep) {
        for (n[0] = 0; n[0] <= holders(c.facts, 1); ++n[0]) {
          for (n[1] = 0; n[1] <= holders(c.facts, 2); ++n[1]) {
            for (n[2] = 0; n[2] <= holders(c.facts, 3); ++n[2]) {
              if (n[0] + n[1] + n[2] + swap + keep <= free) {
                r.persist = p;  // buffers are left to the search
                r.swap = swap;
                r.checkpoint = keep;
                ask();
              }
            }
          }
        }
      }
    }
  }
  return best;
}

}  // namespace

TEST_CASE("the search over levels equals a loop over all divisions") {
  std::uint64_t leveled = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(30); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_case(seed, 3);
    test::random_source r(seed);
    plan::budget const b = tight(r, c);
    answer const found = plan::search(c.facts, c.machine, b, with_levels);
    auto const best = exhaustive(c, b);
    REQUIRE(found.has_value() == best.has_value());
    if (found) {
      REQUIRE(found->search.proven);
      REQUIRE(found->predicted.iteration == *best);
      leveled += found->knobs.levels.empty() ? 0U : 1U;
    }
  }
  CHECK(leveled > 0);
}

TEST_CASE("with levels a plan is never slower, also where the search meets its limits") {
  std::uint64_t faster = 0;
  std::uint64_t only = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(150); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_case(seed, 9);
    test::random_source r(seed);
    plan::budget const b = tight(r, c);
    plan::limits const most =
        seed % 2 == 0 ? plan::limits{}
                      : plan::limits{.programs = 12, .refinements = 10, .candidates = 200};
    answer const mine = plan::search(c.facts, c.machine, b, with_levels, most);
    answer const plain = plan::search(c.facts, c.machine, b, policies<>{}, most);
    REQUIRE(no_slower(mine, plain));
    faster += mine && plain && mine->predicted.iteration < plain->predicted.iteration ? 1U : 0U;
    only += mine && !plain ? 1U : 0U;
    for (std::size_t k = 1; k <= 3; ++k) {  // the same level everywhere, on the device and off it
      plan::level_counts n{};
      n[k - 1] = plan::as_many_as_there_are;
      for (plan::request like : {plan::keep_all(), plan::offload_all()}) {
        like.levels = n;
        REQUIRE(no_slower(mine, plan::make(c.facts, c.machine, b, with_levels, like)));
      }
    }
    if (!mine) {
      continue;
    }
    REQUIRE(plan::search(c.facts, c.machine, b, with_levels, most)->string() == mine->string());
    REQUIRE(mine->predicted.bound <= mine->predicted.iteration);
    auto const programs = mine->segments();
    REQUIRE(programs.has_value());
    REQUIRE(schedule::verify_segments(
                *programs, c.facts, mine->layout, b.gpu.value - c.facts.outside.value, b.host.value)
                .ok);
  }
  MESSAGE("levels made ", faster, " plans faster and ", only, " possible");
  CHECK(faster > 0);
}

TEST_CASE("a plan with levels is the plan of its string, for the same bundle only") {
  std::uint64_t leveled = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(100); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_case(seed, 8);
    test::random_source r(seed);
    answer const found = plan::search(c.facts, c.machine, tight(r, c), with_levels);
    if (!found) {
      continue;
    }
    auto const wanted = plan::parse(found->string().view(), c.facts.job);
    REQUIRE(wanted.has_value());
    REQUIRE(wanted->levels.has_value());
    answer const again = plan::make(c.facts, c.machine, test::everything(), with_levels, *wanted);
    REQUIRE(again.has_value());
    REQUIRE(again->knobs == found->knobs);
    REQUIRE(again->string() == found->string());
    REQUIRE(again->changed.empty());
    bool const any = !found->knobs.levels.empty();
    leveled += any ? 1U : 0U;
    answer const other = plan::make(c.facts, c.machine, test::everything(), policies<>{}, *wanted);
    REQUIRE(other.has_value() == !any);
    if (any) {
      REQUIRE(other.failure().code == errc::not_allowed);
    }
  }
  CHECK(leveled > 0);
}

TEST_CASE("what levels can't hold is clamped and said") {
  test::planning_case const c = make_case(3, 8);
  auto const wanted = plan::parse("checkpoint=0,swap=0,levels=999");
  REQUIRE(wanted.has_value());
  answer const found = plan::make(c.facts, c.machine, test::everything(), with_levels, *wanted);
  REQUIRE(found.has_value());
  std::uint32_t const most = holders(c.facts, 1);
  CHECK(found->at.levels[0] == most);
  REQUIRE(found->changed.size() == 1);
  CHECK(found->changed[0] == text("levels 999:0:0:0 -> " + std::to_string(most) + ":0:0:0"));
  answer const kept =
      plan::make(c.facts, c.machine, test::everything(), with_levels, plan::keep_all());
  REQUIRE(kept.has_value());
  CHECK(kept->knobs.levels.empty());
}

}  // namespace levels_test
