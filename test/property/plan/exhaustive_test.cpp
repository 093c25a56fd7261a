// SPDX-License-Identifier: Apache-2.0
// The search against a loop over every knob of the space, without a bound and without pruning.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <tuple>
#include <vector>

namespace exhaustive_test {

namespace {

using namespace protrain;

struct outcome {
  bool found = false;
  std::uint64_t time = 0;
  std::uint64_t device = 0;
  std::uint64_t host = 0;
};

std::uint64_t extent(schedule::program const& p, space where) {
  std::uint64_t most = 0;
  for (schedule::allocation const& a : p.allocations) {
    most = a.where == where ? std::max(most, a.offset + granules(a.bytes)) : most;
  }
  return most;
}

/// Every combination of persistence, buffers, strategies, sites, deferred updates and slots.
class every_plan {
 public:
  every_plan(test::planning_case const& c, std::uint32_t interval)
      : facts_(c.facts),
        rules_(c.rules),
        pace_(c.machine, c.rules.bandwidth, c.facts.job.world),
        interval_(interval) {
    layout_ = chunk::make_layout(facts_, chunk::uniform_grid{}.capacities(facts_).front());
    step_ = *cost::make_step(facts_, layout_, update::timing::before_next_use, pace_.rates());
    std::vector<trace::pin> const pins = activation::pins_of(facts_);
    std::uint32_t const free = activation::free_blocks(pins);
    std::set<std::vector<activation::strategy>> all;
    for (std::uint32_t swap = 0; swap <= free; ++swap) {
      for (std::uint32_t keep = 0; keep <= free; ++keep) {
        all.insert(activation::interleaved{}.assign(
            pins, {.swap = swap, .checkpoint = free - keep, .interval = interval}));
      }
    }
    strategies_.assign(all.begin(), all.end());
  }

  std::uint64_t count() const {
    std::uint64_t out = 0;
    for_each([&](schedule::knobs const&) { ++out; });
    return out;
  }

  std::vector<outcome> run() const {
    std::vector<outcome> out;
    for_each([&](schedule::knobs const& k) { out.push_back(outcome_of(k)); });
    return out;
  }

 private:
  template <class Visit>
  void for_each(Visit const& visit) const {
    for (std::uint32_t p = 0; p <= layout_.chunks.size(); ++p) {
      schedule::knobs k{.swap_ahead = std::max(1U, (interval_ + 1) / 2),
                        .time = update::before_next_use{}.choose(facts_.job)};
      k.persistent = persistent(p);
      auto const moving = static_cast<std::uint32_t>(trained(k.persistent).size());
      for (std::uint32_t streamed = 0; streamed <= moving; ++streamed) {
        k.sites = sites(k.persistent, streamed);
        for (k.streaming_slots = streamed > 0 ? 1 : 0;
             k.streaming_slots <= (streamed > 0 ? plan::default_streaming_slots : 0);
             ++k.streaming_slots) {
          for (k.defer = 0; k.defer <= moving; ++k.defer) {
            over_memory(k, visit);
          }
        }
      }
    }
  }
  template <class Visit>
  void over_memory(schedule::knobs k, Visit const& visit) const {
    std::uint32_t const fewest = schedule::fewest_buffers(layout_, k.persistent);
    std::uint32_t const most = std::max(fewest, schedule::most_buffers(layout_, k.persistent));
    std::uint32_t const contributions = static_cast<std::uint32_t>(step_.spans.size());
    std::uint32_t const slots = std::clamp(contributions * step_.in_program, 2U, 3U);
    for (k.gradient_slots = 2; k.gradient_slots <= slots; ++k.gradient_slots) {
      for (k.buffers = fewest; k.buffers <= most; ++k.buffers) {
        for (auto const& s : strategies_) {
          k.strategies = s;
          visit(k);
        }
      }
    }
  }

  std::vector<std::uint8_t> persistent(std::uint32_t n) const {
    std::vector<chunk::benefit> weights;
    std::uint64_t const times = facts_.job.accumulate;
    for (std::uint32_t c = 0; c < layout_.chunks.size(); ++c) {
      cost::chunk_cost const& one = step_.chunks[c];
      std::uint64_t saved = 2 * times * one.upload.value + one.norm_host.value;
      saved += one.update_host.value;
      for (cost::span_cost const& g : step_.spans) {
        bool const mine = g.chunk.value == c;
        saved += mine ? times * (g.offload.value + g.accumulate_host.value) : 0;
      }
      weights.push_back({.bytes = one.value + one.states, .saved = {saved}});
    }
    return rules_.placement.persistent(layout_, weights, n);
  }
  /// Chunks that move and are updated.
  std::vector<std::size_t> trained(std::vector<std::uint8_t> const& persistent) const {
    std::vector<std::size_t> out;
    for (std::size_t c = 0; c < persistent.size(); ++c) {
      if (persistent[c] == 0 && step_.chunks[c].updated) {
        out.push_back(c);
      }
    }
    return out;
  }
  /// The first of them are streamed.
  std::vector<update::site> sites(std::vector<std::uint8_t> const& persistent,
                                  std::uint32_t streamed) const {
    std::vector<update::site> out;
    for (std::uint8_t const stays : persistent) {
      out.push_back(stays != 0 ? update::site::gpu : update::site::cpu);
    }
    auto const in = trained(persistent);
    for (std::size_t i = 0; i < streamed; ++i) {
      out[in[i]] = update::site::streamed;
    }
    return out;
  }
  outcome outcome_of(schedule::knobs const& k) const {
    outcome out{.found = true};
    auto const programs = schedule::compile_step(facts_, layout_, k, rules_.eviction, k.defer > 0);
    REQUIRE(programs.has_value());
    for (schedule::program const& p : *programs) {
      auto const durations = sim::durations_of(p, facts_, pace_);
      out.time += sim::finish_of(p, durations, pace_).value * p.times;
      out.device = std::max(out.device, extent(p, space::device));
      out.host = std::max(out.host, extent(p, space::host));
    }
    return out;
  }

  trace::trace const& facts_;
  test::any_bundle const& rules_;
  sim::pace pace_;
  std::uint32_t interval_;
  chunk::layout layout_{};
  cost::step step_{};
  std::vector<std::vector<activation::strategy>> strategies_{};
};

outcome best_of(std::vector<outcome> const& all, plan::budget const& b, std::uint64_t outside) {
  outcome out{};
  for (outcome const& o : all) {
    bool const better = !out.found || std::tie(o.time, o.device) < std::tie(out.time, out.device);
    bool const fits = o.device + outside <= b.gpu.value && o.host <= b.host.value;
    out = fits && better ? o : out;
  }
  return out;
}

/// Programs of a job.
std::uint64_t most_programs() {
  constexpr std::uint64_t in_ci = 3'000;
  return std::getenv("PROTRAIN_TEST_LONG") == nullptr ? in_ci : 200'000;
}

/// The next seed whose job has few enough plans.
test::planning_case draw(std::uint64_t& seed) {
  while (true) {
    test::planning_case c = test::make_planning_case(++seed, 12);
    auto const any = plan::search(c.facts, c.machine, test::everything(), c.rules);
    REQUIRE(any.has_value());
    if (any->layout.chunks.size() <= 12 &&
        every_plan(c, any->at.interval).count() <= most_programs()) {
      return c;
    }
  }
}

}  // namespace

TEST_CASE("the search equals a loop over every knob") {
  std::uint64_t feasible = 0;
  std::uint64_t infeasible = 0;
  std::size_t blocks = 0;
  std::uint64_t seed = 0;
  for (std::uint64_t n = 0; n < test::scaled(200); ++n) {
    test::planning_case const c = draw(seed);
    CAPTURE(seed);
    test::random_source r(seed);
    auto const any = plan::search(c.facts, c.machine, test::everything(), c.rules);
    auto const all = every_plan(c, any->at.interval).run();
    blocks = std::max(blocks, c.facts.blocks.size());
    for (int budgets = 0; budgets < 3; ++budgets) {
      plan::budget const b = test::random_budget(r, c);
      auto const found = plan::search(c.facts, c.machine, b, c.rules);
      outcome const best = best_of(all, b, c.facts.outside.value);
      REQUIRE(found.has_value() == best.found);
      (found ? feasible : infeasible) += 1;
      if (found) {
        REQUIRE(found->search.proven);
        REQUIRE(found->predicted.iteration.value == best.time);
        REQUIRE(found->predicted.device.peak == best.device);
      }
    }
  }
  MESSAGE(
      "up to ", blocks, " blocks; ", feasible, " budgets with a plan, ", infeasible, " without");
  CHECK(feasible > 0);
}

}  // namespace exhaustive_test
