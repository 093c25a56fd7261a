// SPDX-License-Identifier: Apache-2.0
// What every answer promises, on thousands of random jobs: no fixed policy is faster, the program is
// verified and within the budget, and more memory costs neither time nor the plan.

#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace laws_test {

namespace {

using namespace protrain;

using answer = result<plan::plan, plan::infeasible>;

constexpr std::uint64_t jobs = 5000;

/// A job of at most twelve blocks, mostly of fewer, on up to four ranks of one host in a third of the
/// cases.
test::planning_case make_job(std::uint64_t seed) {
  test::planning_case c = test::make_planning_case(seed, seed % 10 == 0 ? 12 : 4);
  test::random_source r(~seed);
  c.machine.devices = 4;
  c.facts.job.world = r.chance(67) ? 1 : r.between(2, 4);
  return c;
}

answer fixed(test::planning_case const& c, plan::budget const& b, plan::request const& what) {
  return plan::make(c.facts, c.machine, b, c.rules, what);
}

/// From less than the policy that needs least takes to a little more than the one that needs most, of
/// the device; of the host in a third of the cases, too.
plan::budget draw_budget(test::random_source& r, test::planning_case const& c) {
  plan::budget out = test::everything();
  std::uint64_t const most = fixed(c, out, plan::keep_all())->predicted.device.peak;
  auto const least = fixed(c, out, plan::offload_and_checkpoint_all());
  std::uint64_t const low = std::min(most, least->predicted.device.peak) * 3 / 4;
  out.gpu = {r.between(low, most + most / 16)};
  if (r.chance(33)) {
    std::uint64_t const ranks = c.facts.job.world;
    out.host = {r.between(0, 2 * ranks * least->predicted.host.peak)};
  }
  return out;
}

void check_fixed(test::planning_case const& c, plan::budget const& b, answer const& found) {
  for (plan::fixed_policy const& each : plan::fixed_policies()) {
    CAPTURE(std::string(each.name));
    if (answer const other = fixed(c, b, each.what)) {
      REQUIRE(found.has_value());
      REQUIRE(found->predicted.iteration <= other->predicted.iteration);
    }
  }
}

void check_program(test::planning_case const& c, plan::budget const& b, plan::plan const& p) {
  plan::allowance const most = plan::allowance_of(b, c.facts, c.machine);
  auto const programs = p.segments(c.rules.eviction);
  REQUIRE(programs.has_value());
  REQUIRE(schedule::verify_segments(*programs, c.facts, p.layout, most.device, most.host).ok);
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  for (schedule::program const& one : *programs) {
    device = std::max(device, schedule::memory_of(one, space::device).peak);
    host = std::max(host, schedule::memory_of(one, space::host).peak);
  }
  REQUIRE(p.predicted.device.peak == device);
  REQUIRE(p.predicted.host.peak == host);
  REQUIRE(device <= most.device);
  REQUIRE(host <= most.host);
}

/// How unproven answers fared with more memory.
struct anomalies {
  std::uint64_t feasible = 0;
  std::uint64_t unproven = 0;
  std::uint64_t slower = 0;
  double worst = 1;  ///< time with more memory over time with less

  void see(plan::plan const& before, plan::plan const& after) {
    if (after.search.proven) {
      REQUIRE(after.predicted.iteration <= before.predicted.iteration);
    } else if (after.predicted.iteration > before.predicted.iteration) {
      ++slower;
      worst = std::max(worst,
                       static_cast<double>(after.predicted.iteration.value) /
                           static_cast<double>(before.predicted.iteration.value));
    }
  }
};

/// More on the device, on the host, or on both.
plan::budget with_more(test::random_source& r, plan::budget b) {
  std::uint64_t const where = r.between(0, 2);
  b.gpu += bytes{where == 1 ? 0 : r.between(1, 1 + b.gpu.value / 2)};
  b.host += bytes{where == 0 ? 0 : r.between(1, 1 + b.host.value / 2)};
  return b;
}

}  // namespace

TEST_CASE(
    "automatic placement loses to a fixed one: nor does it pass its budget, and more memory "
    "costs nothing, for 5,000 jobs") {
  anomalies seen;
  std::uint64_t const all = test::scaled(jobs);
  for (std::uint64_t seed = 0; seed < all; ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_job(seed);
    test::random_source r(seed ^ 0x1A35ULL);
    plan::budget const b = draw_budget(r, c);
    answer const found = plan::search(c.facts, c.machine, b, c.rules);
    check_fixed(c, b, found);
    if (!found) {
      REQUIRE(found.failure().short_bytes() > 0);
      continue;
    }
    ++seen.feasible;
    seen.unproven += found->search.proven ? 0U : 1U;
    check_program(c, b, *found);
    answer const more = plan::search(c.facts, c.machine, with_more(r, b), c.rules);
    REQUIRE(more.has_value());
    seen.see(*found, *more);
  }
  MESSAGE(seen.feasible,
          " of ",
          all,
          " jobs fit; ",
          seen.unproven,
          " answers were unproven, ",
          seen.slower,
          " got slower with more memory, by a factor of ",
          seen.worst,
          " at most");
  CHECK(seen.feasible * 2 > all);
}

TEST_CASE("memory by time: its largest is the peak of the step's programs, to the byte") {
  for (std::uint64_t seed = 0; seed < test::scaled(400); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_job(seed);
    test::random_source r(seed ^ 0x1A35ULL);
    answer const found = fixed(c, draw_budget(r, c), plan::request{.swap = 1, .checkpoint = 1});
    if (!found) {
      continue;
    }
    auto const step = plan::timed_step(*found, c.machine, c.rules);
    REQUIRE(step.has_value());
    std::uint64_t device = 0;
    std::uint64_t host = 0;
    picoseconds length{};
    std::uint64_t carried = 0;  // on the device all the time
    for (plan::timed_program const& one : *step) {
      for (schedule::allocation const& a : one.program.allocations) {
        bool const stays = a.carried && a.where == space::device;
        carried = stays ? std::max(carried, a.offset + granules(a.bytes)) : carried;
      }
      device = std::max(device, schedule::memory_of(one.program, space::device).peak);
      host = std::max(host, schedule::memory_of(one.program, space::host).peak);
      length += one.times.finish;
    }
    for (std::size_t const parts : {1U, 7U, 64U}) {
      plan::memory_over_time const m = plan::memory_by_time(*step, parts);
      REQUIRE(m.length == length);
      REQUIRE(m.device.size() == parts);
      REQUIRE(m.host.size() == parts);
      REQUIRE(*std::ranges::max_element(m.device) == device);
      REQUIRE(*std::ranges::min_element(m.device) >= carried);
      REQUIRE(*std::ranges::max_element(m.host) == host);
    }
    REQUIRE(device <= found->predicted.device.peak);
    REQUIRE(host <= found->predicted.host.peak);
  }
}

}  // namespace laws_test
