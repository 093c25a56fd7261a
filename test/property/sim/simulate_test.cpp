// SPDX-License-Identifier: Apache-2.0
// Simulation of random programs against an event loop written the obvious way, and what must add
// up.

#include "protrain/sim/simulate.hpp"

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace simulate_test {

namespace {

using namespace protrain;

/// Starts whatever may start, then moves the clock to the next end.
std::vector<sim::interval> follow_events(schedule::program const& p,
                                         std::vector<picoseconds> const& durations) {
  std::array<std::vector<std::uint32_t>, queue_count> waiting;
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    waiting[static_cast<std::size_t>(p.instructions[i].queue)].push_back(i);
  }
  std::vector<sim::interval> at(p.instructions.size());
  std::vector<bool> done(p.instructions.size());
  std::array<std::size_t, queue_count> next{};
  std::array<bool, queue_count> running{};
  picoseconds now{};
  std::size_t left = p.instructions.size();
  while (left > 0) {
    for (std::size_t q = 0; q < queue_count; ++q) {
      if (running[q] || next[q] == waiting[q].size()) {
        continue;
      }
      std::uint32_t const i = waiting[q][next[q]];
      auto const needs = p.dependencies_of(p.instructions[i]);
      if (std::all_of(needs.begin(), needs.end(), [&](std::uint32_t d) { return done[d]; })) {
        at[i] = {now, now + durations[i]};
        running[q] = true;
      }
    }
    picoseconds soonest{~std::uint64_t{0}};
    for (std::size_t q = 0; q < queue_count; ++q) {
      soonest = running[q] ? std::min(soonest, at[waiting[q][next[q]]].end) : soonest;
    }
    now = soonest;
    for (std::size_t q = 0; q < queue_count; ++q) {
      if (running[q] && at[waiting[q][next[q]]].end == now) {
        done[waiting[q][next[q]]] = true;
        running[q] = false;
        ++next[q];
        --left;
      }
    }
  }
  return at;
}

}  // namespace

TEST_CASE("one pass finds the times of an event loop, and the parts add up") {
  for (std::uint64_t seed = 0; seed < test::scaled(2000); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    auto const program = schedule::compile(c.facts, c.layout, c.knobs);
    REQUIRE(program.has_value());
    test::random_source r(seed);
    std::vector<picoseconds> durations;
    for (std::size_t i = 0; i < program->instructions.size(); ++i) {
      durations.push_back({r.chance(20) ? 0 : r.between(1, 100)});
    }
    sim::timeline const t = sim::simulate(*program, durations);
    REQUIRE(t.at == follow_events(*program, durations));
    REQUIRE(sim::finish_of(*program, durations) == t.finish);
    picoseconds phases{};
    for (std::size_t p = 0; p < sim::phase_count; ++p) {
      picoseconds critical{};
      for (picoseconds const share : t.critical[p]) {
        critical += share;
      }
      REQUIRE(critical == t.phases[p]);
      phases += t.phases[p];
    }
    REQUIRE(phases == t.finish);
    for (std::size_t q = 0; q < queue_count; ++q) {
      REQUIRE(t.exposed[q] <= t.busy[q]);
      REQUIRE(t.busy[q] <= t.finish);
    }
  }
}

}  // namespace simulate_test
