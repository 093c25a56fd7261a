// SPDX-License-Identifier: Apache-2.0
// The search against an exhaustive loop over the same knobs, and its laws: within the budget,
// never slower than a fixed policy, never slower with more memory, and reports that are true.

#include "protrain/plan/search.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/plan/effects.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_contention.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

namespace search_test {

namespace {

using namespace protrain;

std::uint64_t extent(schedule::program const& p, space where) {
  return schedule::memory_of(p, where).peak;
}

/// The plan of these numbers; what depends on them stays open.
result<plan::plan, plan::infeasible> at_four_numbers(test::planning_case const& c,
                                                     plan::numbers const& n) {
  text wanted = "persist=";
  wanted += std::uint64_t{n.persist};
  wanted += ",buffer=";
  wanted += std::uint64_t{n.buffer};
  wanted += ",swap=";
  wanted += std::uint64_t{n.swap};
  wanted += ",checkpoint=";
  wanted += std::uint64_t{n.checkpoint};
  auto const request = plan::parse(wanted.view(), c.facts.job);
  REQUIRE(request.has_value());
  return plan::make(c.facts, c.machine, test::everything(), policies<>{}, *request);
}

}  // namespace

TEST_CASE(
    "automatic placement loses to a fixed one: never, and it is verified and within its budget") {
  for (std::uint64_t seed = 0; seed < test::scaled(400); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 8);
    test::random_source r(seed);
    plan::budget const b = test::random_budget(r, c);
    auto const found = plan::search(c.facts, c.machine, b, c.rules);
    for (plan::fixed_policy const& fixed : plan::fixed_policies()) {
      auto const other = plan::make(c.facts, c.machine, b, c.rules, fixed.what);
      if (other) {
        REQUIRE(found.has_value());
        REQUIRE(found->predicted.iteration <= other->predicted.iteration);
      }
    }
    if (found) {
      auto const program = found->compile(c.rules.eviction);
      REQUIRE(program.has_value());
      REQUIRE(schedule::verify(*program, c.facts, found->layout, b.gpu.value, b.host.value).ok);
      REQUIRE(found->predicted.device.peak <= b.gpu.value);
      REQUIRE(found->predicted.host.peak <= b.host.value);
      REQUIRE(found->predicted.bound <= found->predicted.iteration);
      REQUIRE(plan::search(c.facts, c.machine, b, c.rules)->string() == found->string());
    }
  }
}

TEST_CASE("an offload knob that costs memory: none is turned for nothing") {
  std::uint64_t costly = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(300); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 6);
    test::random_source r(seed);
    plan::budget const b = test::random_budget(r, c);
    auto const found = plan::search(c.facts, c.machine, b);
    if (!found || !found->search.proven) {
      continue;
    }
    for (plan::knob_effect const& e : plan::effects(*found, c.machine)) {
      CAPTURE(std::string(e.knob));
      CAPTURE(std::string(plan::print(found->at).view()));
      CAPTURE(std::string(plan::print(e.at).view()));
      costly += e.device_peak.value < found->predicted.device.peak ? 1U : 0U;
      bool const fits = e.host_peak <= b.host;
      if (e.knob == "unroll") {  // the length of programs offloads nothing
        continue;
      }
      bool const slower = e.iteration > found->predicted.iteration;
      REQUIRE_FALSE((fits && !slower && e.device_peak.value < found->predicted.device.peak));
    }
    if (found->at.listed) {
      continue;
    }
    for (std::uint32_t plan::numbers::* const knob : {&plan::numbers::persist,
                                                      &plan::numbers::buffer,
                                                      &plan::numbers::swap,
                                                      &plan::numbers::checkpoint}) {
      for (bool const up : {false, true}) {
        plan::numbers turned = found->at;
        if (!up && turned.*knob == 0) {
          continue;
        }
        turned.*knob += up ? 1U : ~0U;
        auto const other = at_four_numbers(c, turned);
        if (!other || !other->changed.empty() || other->at.interval != found->at.interval) {
          continue;
        }
        // What the knob does to the peak is predicted, to the byte.
        std::uint64_t peak = 0;
        auto const programs = other->segments();
        REQUIRE(programs.has_value());
        for (schedule::program const& p : *programs) {
          peak = std::max(peak, extent(p, space::device));
        }
        REQUIRE(peak == other->predicted.device.peak);
        costly += other->predicted.device.peak > found->predicted.device.peak ? 1U : 0U;
        bool const fits = other->predicted.host.peak <= b.host.value;
        REQUIRE_FALSE((fits && other->predicted.iteration <= found->predicted.iteration &&
                       other->predicted.device.peak < found->predicted.device.peak));
      }
    }
  }
  CHECK(costly > 0);
}

TEST_CASE("more memory never makes a proven plan slower") {
  constexpr std::uint32_t ever = 1U << 30U;  // proven, however long it takes
  plan::limits const patient{
      .programs = ever, .instructions = std::uint64_t{1} << 40U, .candidates = ever};
  for (std::uint64_t seed = 0; seed < test::scaled(200); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 6);
    test::random_source r(seed);
    plan::budget b = test::random_budget(r, c);
    auto before = plan::search(c.facts, c.machine, b, c.rules, patient);
    for (int step = 0; step < 4; ++step) {
      b.gpu += bytes{r.between(0, 20'000)};
      b.host += bytes{r.between(0, 20'000)};
      auto const after = plan::search(c.facts, c.machine, b, c.rules, patient);
      if (before) {
        REQUIRE(after.has_value());
        REQUIRE(after->search.proven);
        REQUIRE(after->predicted.iteration <= before->predicted.iteration);
      }
      before = after;
    }
  }
}

TEST_CASE("a search ends and answers however little it may do") {
  for (std::uint32_t const n : {0U, 1U, 2U, 5U, 20U}) {
    plan::limits const few{.programs = n, .refinements = n, .instructions = n, .candidates = n};
    for (std::uint64_t seed = 0; seed < test::scaled(40); ++seed) {
      CAPTURE(n);
      CAPTURE(seed);
      test::planning_case const c = test::make_planning_case(seed, 8);
      auto const found = plan::search(c.facts, c.machine, test::everything(), c.rules, few);
      REQUIRE(found.has_value());
      REQUIRE(found->search.bound <= found->predicted.iteration);
      plan::budget const tight{.gpu = {20'000}, .host = test::everything().host};
      auto const other = plan::search(c.facts, c.machine, tight, c.rules, few);
      REQUIRE((other ? other->predicted.device.peak <= 20'000 : other.failure().lacks_memory()));
    }
  }
}

TEST_CASE("raising a budget by what is short makes a plan fit") {
  std::uint64_t refused = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(400); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 8);
    test::random_source r(seed);
    plan::budget b{.gpu = {r.between(0, 40'000)}, .host = {r.between(0, 400'000)}};
    auto const found = plan::search(c.facts, c.machine, b, c.rules);
    if (found) {
      continue;
    }
    ++refused;
    plan::infeasible const& why = found.failure();
    REQUIRE(why.lacks_memory());
    REQUIRE(why.short_bytes() > 0);
    b.gpu += bytes{why.short_device};
    b.host += bytes{why.short_host};
    REQUIRE(b.gpu.value >= why.needs_device);
    REQUIRE(plan::search(c.facts, c.machine, b, c.rules).has_value());
    if (why.short_host == 0) {
      // The least there is: one byte fewer is not enough.
      b.gpu -= bytes{1};
      REQUIRE(!plan::search(c.facts, c.machine, b, c.rules).has_value());
    }
  }
  CHECK(refused > 0);
}

TEST_CASE("a plan's string gives the same plan") {
  for (std::uint64_t seed = 0; seed < test::scaled(300); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 8);
    test::random_source r(seed);
    auto const found = plan::search(c.facts, c.machine, test::random_budget(r, c), c.rules);
    if (!found) {
      continue;
    }
    auto const wanted = plan::parse(found->string().view(), c.facts.job);
    REQUIRE(wanted.has_value());
    auto const again = plan::make(c.facts, c.machine, test::everything(), c.rules, *wanted);
    REQUIRE(again.has_value());
    REQUIRE(again->knobs == found->knobs);
    REQUIRE(again->layout == found->layout);
    REQUIRE(again->string() == found->string());
    REQUIRE(again->changed.empty());
    REQUIRE(again->predicted.iteration == found->predicted.iteration);
  }
}

}  // namespace search_test
