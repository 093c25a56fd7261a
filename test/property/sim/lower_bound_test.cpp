// SPDX-License-Identifier: Apache-2.0
// The law of bounds on random programs: no simulated time and no compiled extent is below them.
// The paper's closed form is the negative control: it is an estimate, and the same check says so.

#include "protrain/cost/lower_bound.hpp"

#include "protrain/chunk/layout.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/simulate.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace {

using namespace protrain;

constexpr std::uint64_t cases = 10'000;

/// Rates around those at which the random shapes' copies take as long as their compute.
hw::machine random_machine(test::random_source& r) {
  auto const random_rate = [&] { return 1'000'000'000'000 * r.between(1, 40); };
  return {.name = "random",
          .host_to_device = {random_rate()},
          .device_to_host = {random_rate()},
          .copy_latency = {r.chance(50) ? 0 : r.between(1, 400)},
          .device_bandwidth = {random_rate() * 10},
          .host_bandwidth = {random_rate()},
          .collective = {random_rate()}};
}

struct run {
  test::random_case job;
  hw::machine machine;
  schedule::program program;
  std::vector<picoseconds> durations;
  picoseconds simulated;
};

run make_run(std::uint64_t seed) {
  run out{
      .job = test::make_case(seed), .machine = {}, .program = {}, .durations = {}, .simulated = {}};
  test::random_source r(seed ^ 0x5EED);
  out.machine = random_machine(r);
  auto program = schedule::compile(out.job.facts, out.job.layout, out.job.knobs);
  REQUIRE(program.has_value());
  out.program = *std::move(program);
  out.durations = sim::durations_of(out.program, out.job.facts, out.machine);
  out.simulated = sim::simulate(out.program, out.durations).finish;
  return out;
}

/// The check itself: whether a claimed lower bound is one.
bool holds(picoseconds bound, picoseconds simulated) { return bound <= simulated; }

std::uint64_t extent(schedule::program const& p, space where) {
  std::uint64_t most = 0;
  for (schedule::allocation const& a : p.allocations) {
    most = a.where == where ? std::max(most, a.offset + granules(a.bytes)) : most;
  }
  return most;
}

struct parts {
  cost::step step;
  cost::placed placed;
  cost::assigned assigned;
};

parts facts_of(run const& x) {
  cost::rates const r = cost::rates_of(x.machine, link::fixed{});
  auto step = cost::make_step(x.job.facts, x.job.layout, x.job.knobs.time, r);
  REQUIRE(step.has_value());
  auto placed = cost::make_placed(x.job.facts, x.job.layout, *step, x.job.knobs.persistent);
  auto assigned = cost::make_assigned(x.job.facts,
                                      *step,
                                      r,
                                      x.job.knobs.strategies,
                                      x.job.knobs.gradient_slots,
                                      x.job.knobs.swap_ahead);
  return {*std::move(step), std::move(placed), std::move(assigned)};
}

/// Times of the paper's model, by chunk: work of a block counts where its first chunk is.
struct closed_form {
  trace::trace const& facts;
  chunk::layout const& layout;
  schedule::knobs const& knobs;
  cost::step const& step;

  std::size_t chunks() const { return layout.chunks.size(); }
  bool persistent(std::size_t c) const { return knobs.persistent[c] != 0; }

  picoseconds compute(std::size_t c, bool backward) const {
    picoseconds sum{};
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      auto const& in = layout.chunks_of[b];
      trace::block_shape const& shape = facts.shape(make_id<block_id>(b));
      if ((in.empty() ? 0 : in.front().index()) != c) {
        continue;
      }
      bool const again = knobs.strategies[b] == activation::strategy::checkpoint;
      sum += backward ? shape.backward + (again ? shape.forward : picoseconds{}) : shape.forward;
    }
    return sum;
  }
  picoseconds upload(std::size_t c) const {
    return persistent(c) ? picoseconds{} : step.chunks[c].upload;
  }
  picoseconds offload(std::size_t c) const {
    picoseconds sum{};
    for (cost::span_cost const& g : step.spans) {
      sum += g.chunk.index() == c && !persistent(c) ? g.offload : picoseconds{};
    }
    return sum;
  }
  /// (3) and (4): chunk i computes beside the prefetch of chunk i + 1.
  picoseconds forward() const {
    picoseconds sum{};
    for (std::size_t i = 0; i <= chunks(); ++i) {
      picoseconds const work = i == 0 ? picoseconds{} : compute(i - 1, false);
      sum += std::max(work, i < chunks() ? upload(i) : picoseconds{});
    }
    return sum;
  }
  /// (5), (6) and (7): chunk i computes beside the prefetch of the one before it and its own
  /// offload.
  picoseconds backward() const {
    picoseconds sum{};
    for (std::size_t i = chunks(); i-- > 0;) {
      bool const fetch = i > 0 && i - 1 + knobs.buffers < chunks();
      sum += std::max(compute(i, true), (fetch ? upload(i - 1) : picoseconds{}) + offload(i));
    }
    return sum;
  }
  /// (2)
  picoseconds iteration() const {
    picoseconds device{};
    picoseconds host{};
    for (std::size_t c = 0; c < chunks(); ++c) {
      device += persistent(c) ? step.chunks[c].update_device : picoseconds{};
      host += persistent(c) ? picoseconds{} : step.chunks[c].update_host;
    }
    return forward() + std::max(backward() + device, host);
  }
};

}  // namespace

TEST_CASE("a program's bound is never above its simulated time") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    REQUIRE(holds(cost::lower_bound(x.program, x.durations), x.simulated));
  }
}

TEST_CASE("a bound from knobs is never above the simulated time") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    parts const f = facts_of(x);
    REQUIRE(
        holds(cost::lower_bound(f.step, f.placed, f.assigned, x.job.knobs.buffers), x.simulated));
  }
}

TEST_CASE("live bytes are never above the compiled extents") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    run const x = make_run(seed);
    parts const f = facts_of(x);
    cost::live_bytes const least =
        cost::least_memory(x.job.layout, f.step, f.placed, f.assigned, x.job.knobs.buffers);
    REQUIRE(least.device <= extent(x.program, space::device));
    REQUIRE(least.host <= extent(x.program, space::host));
  }
}

TEST_CASE("the paper's closed form is no bound, and this check reports it") {
  std::uint64_t above = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    run const x = make_run(seed);
    parts const f = facts_of(x);
    if (x.job.facts.job.accumulate == 1) {
      closed_form const paper{x.job.facts, x.job.layout, x.job.knobs, f.step};
      above += holds(paper.iteration(), x.simulated) ? 0U : 1U;
    }
  }
  CHECK(above > 0);
}
