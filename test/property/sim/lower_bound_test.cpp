// SPDX-License-Identifier: Apache-2.0
// The law of bounds on random programs: no simulated time and no compiled extent is below them.
// The paper's closed form is the negative control: it is an estimate, and the same check says so.

#include "protrain/cost/lower_bound.hpp"

#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/make_placed.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/paper_time.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/sim/whole_step.hpp"
#include "protrain/update/site.hpp"
#include "test/support/random_contention.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace lower_bound_test {

namespace {

using namespace protrain;

constexpr std::uint64_t cases = 10'000;

struct run {
  test::random_case job;
  hw::machine machine;
  std::vector<schedule::program> programs;  ///< of one step
  picoseconds simulated;
};

std::vector<picoseconds> durations_of(run const& x, schedule::program const& p) {
  return sim::durations_of(p, x.job.facts, x.machine);
}

/// Odd seeds: several ranks, and steps that begin with updates of the one before.
run make_run(std::uint64_t seed) {
  bool const ranked = seed % 2 != 0;
  run out{.job = ranked ? test::make_ranked_case(seed) : test::make_case(seed),
          .machine = {},
          .programs = {},
          .simulated = {}};
  test::random_source r(seed ^ 0x5EED);
  out.machine = test::random_rates(r);
  auto programs = schedule::compile_step(
      out.job.facts, out.job.layout, out.job.knobs, out.job.eviction, ranked);
  REQUIRE(programs.has_value());
  out.programs = *std::move(programs);
  sim::whole_step step;
  for (schedule::program const& p : out.programs) {
    step.add(sim::simulate(p, durations_of(out, p)), p.times);
  }
  out.simulated = step.iteration;
  return out;
}

/// Of what a bound must know, how many runs have some.
struct coverage {
  std::uint64_t cut = 0;
  std::uint64_t ranked = 0;
  std::uint64_t streamed = 0;
  std::uint64_t deferred = 0;
  std::uint64_t leveled = 0;
  std::uint64_t swapped = 0;

  void see(run const& x) {
    auto const has = [&](schedule::opcode op) {
      return std::ranges::any_of(x.programs, [&](schedule::program const& p) {
        return std::ranges::find(p.instructions, op, &schedule::instruction::op) !=
               p.instructions.end();
      });
    };
    auto const late = [](schedule::program const& p) {
      return std::ranges::count(p.deferred, std::uint8_t{1}) > 0;
    };
    cut += x.programs.size() > 1 ? 1U : 0U;
    ranked += has(schedule::opcode::gather) || has(schedule::opcode::reduce) ? 1U : 0U;
    streamed += has(schedule::opcode::update_part) ? 1U : 0U;
    deferred += std::ranges::any_of(x.programs, late) ? 1U : 0U;
    leveled += has(schedule::opcode::rebuild) ? 1U : 0U;
    swapped += has(schedule::opcode::swap_in) ? 1U : 0U;
  }
  std::uint64_t least() const {
    return std::min({cut, ranked, streamed, deferred, leveled, swapped});
  }
};

/// The check itself: whether a claimed lower bound is one.
bool holds(picoseconds bound, picoseconds simulated) { return bound <= simulated; }

std::uint64_t extent(std::vector<schedule::program> const& all, space where) {
  std::uint64_t most = 0;
  for (schedule::program const& p : all) {
    for (schedule::allocation const& a : p.allocations) {
      most = a.where == where ? std::max(most, a.offset + granules(a.bytes)) : most;
    }
  }
  return most;
}

struct parts {
  cost::step step{};
  cost::placed placed;
  cost::placed undeferred;  ///< as if it were open which updates are deferred
  cost::placed unsited;     ///< and where chunks that move are updated
  cost::assigned assigned;
};

parts facts_of(run const& x) {
  cost::rates const r = cost::rates_of(x.machine, link::fixed{}, x.job.facts.job.world);
  schedule::knobs const& k = x.job.knobs;
  auto step = cost::make_step(x.job.facts, x.job.layout, k.time, r, k.unroll, k.stream_parts);
  REQUIRE(step.has_value());
  std::vector<std::uint8_t> streamed;
  for (update::site const s : k.sites) {
    streamed.push_back(s == update::site::streamed ? 1 : 0);
  }
  auto const place = [&](cost::decided what) {
    return cost::make_placed(
        x.job.facts, x.job.layout, *step, k.persistent, k.defer, streamed, what);
  };
  parts out{.placed = place(cost::decided::all),
            .undeferred = place(cost::decided::sites),
            .unsited = place(cost::decided::persistence),
            .assigned = {}};
  out.assigned = cost::make_assigned(x.job.facts,
                                     *step,
                                     r,
                                     x.job.knobs.strategies,
                                     x.job.knobs.gradient_slots,
                                     x.job.knobs.swap_ahead,
                                     x.job.knobs.levels);
  out.step = *std::move(step);
  return out;
}

/// The paper's time of a run whose persistent chunks are the first ones; none of another run.
std::optional<picoseconds> closed_form(run const& x) {
  std::vector<std::uint8_t> const& stays = x.job.knobs.persistent;
  auto const persist = static_cast<std::uint32_t>(std::count(stays.begin(), stays.end(), 1));
  if (stays.empty() || stays != chunk::persist_first{}.persistent(x.job.layout, persist)) {
    return std::nullopt;
  }
  auto const paper =
      cost::make_paper_job(x.job.facts, x.job.layout, x.machine, x.job.knobs.time, link::fixed{});
  REQUIRE(paper.has_value());
  cost::paper_numbers const n{.persist = persist, .buffer = x.job.knobs.buffers};
  return cost::iteration_time(*paper, cost::make_paper_plan(*paper, n, x.job.knobs.strategies));
}

}  // namespace

TEST_CASE("a program's bound is never above its simulated time") {
  coverage seen;
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    seen.see(x);
    for (schedule::program const& p : x.programs) {
      auto const d = durations_of(x, p);
      REQUIRE(holds(cost::lower_bound(p, d), sim::simulate(p, d).finish));
    }
  }
  CHECK(seen.cut > test::scaled(cases) / 10);
  CHECK(seen.least() > test::scaled(cases) / 20);
}

TEST_CASE("a bound from knobs is never above the simulated time") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    parts const f = facts_of(x);
    for (cost::placed const* p : {&f.placed, &f.undeferred, &f.unsited}) {
      REQUIRE(holds(cost::lower_bound(f.step, *p, f.assigned, x.job.knobs.buffers), x.simulated));
    }
  }
}

TEST_CASE("both bounds hold where copies, compute and updates slow each other") {
  std::uint64_t slower = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run x = make_run(seed);
    test::random_source r(seed ^ 0xB07DULL);
    x.machine = test::with_contention(r, test::with_ranks(r, x.machine));
    sim::pace const pace(x.machine, link::shared{}, x.job.facts.job.world);
    picoseconds simulated{};
    for (schedule::program const& p : x.programs) {
      auto const d = sim::durations_of(p, x.job.facts, pace);
      picoseconds const finish = sim::finish_of(p, d, pace);
      REQUIRE(holds(cost::lower_bound(p, d), finish));
      simulated += finish * p.times;
    }
    parts const f = facts_of(x);
    REQUIRE(holds(cost::lower_bound(f.step, f.placed, f.assigned, x.job.knobs.buffers), simulated));
    slower += simulated > x.simulated ? 1U : 0U;
  }
  CHECK(slower > test::scaled(cases) / 2);
}

TEST_CASE("live bytes are never above the compiled extents") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    parts const f = facts_of(x);
    for (cost::placed const* p : {&f.placed, &f.undeferred, &f.unsited}) {
      cost::live_bytes const least = cost::least_memory(
          x.job.layout, f.step, *p, f.assigned, x.job.knobs.buffers, x.job.knobs.streaming_slots);
      REQUIRE(least.device <= extent(x.programs, space::device));
      REQUIRE(least.host <= extent(x.programs, space::host));
    }
  }
}

TEST_CASE("the paper's closed form is no bound, and this check reports it") {
  std::uint64_t compared = 0;
  std::uint64_t above = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    run const x = make_run(seed);
    if (auto const time = closed_form(x)) {
      ++compared;
      above += holds(*time, x.simulated) ? 0U : 1U;
    }
  }
  MESSAGE("the closed form is above ", above, " of ", compared, " simulated times");
  CHECK(above > 0);
}

}  // namespace lower_bound_test
