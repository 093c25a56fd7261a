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

struct outcome {
  bool found = false;
  std::uint64_t time = 0;
  std::uint64_t device = 0;
  std::uint64_t host = 0;
};

std::uint64_t extent(schedule::program const& p, space where) {
  return schedule::memory_of(p, where).peak;
}

/// Every combination of the knobs, one after the other, without a bound.
class exhaustive {
 public:
  explicit exhaustive(test::planning_case const& c, std::uint32_t interval)
      : facts_(c.facts),
        machine_(c.machine),
        rules_(c.rules),
        pace_(c.machine, c.rules.bandwidth, c.facts.job.world),
        interval_(interval) {
    layout_ = chunk::make_layout(facts_, chunk::uniform_grid{}.capacities(facts_).front());
    benefits_ = benefits();
    std::vector<trace::pin> const pins = activation::pins_of(facts_);
    std::uint32_t const free = activation::free_blocks(pins);
    for (std::uint32_t swap = 0; swap <= free; ++swap) {
      for (std::uint32_t keep = 0; keep <= free; ++keep) {
        strategies_.push_back(activation::interleaved{}.assign(
            pins, {.swap = swap, .checkpoint = free - keep, .interval = interval}));
      }
    }
    for (std::uint32_t p = 0; p <= layout_.chunks.size(); ++p) {
      std::uint32_t streamed = 0;
      while (add_placement(p, streamed)) {
        ++streamed;
      }
    }
  }

  outcome best(std::uint64_t device, std::uint64_t host) const {
    outcome out{};
    for (outcome const& o : all_) {
      bool const better = !out.found || std::tie(o.time, o.device) < std::tie(out.time, out.device);
      out = o.device <= device && o.host <= host && better ? o : out;
    }
    return out;
  }

 private:
  /// Per chunk: what it takes on the device, and the time of its copies and the host's work on it.
  std::vector<chunk::benefit> benefits() const {
    std::vector<chunk::benefit> out;
    cost::rates const r = cost::rates_of(machine_, link::fixed{}, facts_.job.world);
    auto const step = cost::make_step(facts_, layout_, update::timing::before_next_use, r);
    REQUIRE(step.has_value());
    std::uint64_t const times = facts_.job.accumulate;
    for (std::uint32_t c = 0; c < layout_.chunks.size(); ++c) {
      cost::chunk_cost const& one = step->chunks[c];
      std::uint64_t saved = 2 * times * one.upload.value + one.norm_host.value;
      saved += one.update_host.value;
      for (cost::span_cost const& g : step->spans) {
        bool const mine = g.chunk.value == c;
        saved += mine ? times * (g.offload.value + g.accumulate_host.value) : 0;
      }
      out.push_back({.bytes = one.value + one.states, .saved = {saved}});
    }
    return out;
  }

  /// The first chunks that move and train are streamed; false where there are none.
  bool add_placement(std::uint32_t p, std::uint32_t streamed) {
    schedule::knobs k{};
    k.persistent = rules_.placement.persistent(layout_, benefits_, p);
    for (std::uint8_t const stays : k.persistent) {
      k.sites.push_back(stays != 0 ? update::site::gpu : update::site::cpu);
    }
    for (std::size_t c = 0; c < k.sites.size() && streamed > 0; ++c) {
      if (k.sites[c] == update::site::cpu && trains(c)) {
        k.sites[c] = update::site::streamed;
        --streamed;
      }
    }
    if (streamed > 0) {
      return false;
    }
    k.swap_ahead = std::max(1U, (interval_ + 1) / 2);
    k.time = update::before_next_use{}.choose(facts_.job);
    k.defer = deferred(k.sites);
    std::uint32_t const fewest = schedule::fewest_buffers(layout_, k.persistent);
    std::uint32_t const most = std::max(fewest, schedule::most_buffers(layout_, k.persistent));
    for (k.buffers = fewest; k.buffers <= most; ++k.buffers) {
      for (auto const& s : strategies_) {
        k.strategies = s;
        add(k);
      }
    }
    return true;
  }
  bool trains(std::size_t c) const {
    return layout_.chunks[c].trainable && layout_.chunks[c].elements > 0;
  }
  /// All updates of chunks that move if they wait for the norm; else the first ones, until the CPU
  /// takes no longer than backward for the others.
  std::uint32_t deferred(std::vector<update::site> const& sites) const {
    std::vector<std::uint64_t> updates;
    cost::rates const r = cost::rates_of(machine_, link::fixed{}, facts_.job.world);
    auto const step = cost::make_step(facts_, layout_, update::timing::before_next_use, r);
    REQUIRE(step.has_value());
    for (std::size_t c = 0; c < sites.size(); ++c) {
      if (sites[c] != update::site::gpu && step->chunks[c].updated) {
        bool const cpu = sites[c] == update::site::cpu;
        updates.push_back(cpu ? step->chunks[c].update_host.value : 0);
      }
    }
    std::uint64_t backward = 0;
    for (shape_id const b : facts_.blocks) {
      backward += facts_.shapes[b.index()].backward.value * facts_.job.accumulate;
    }
    std::uint32_t n = 0;
    while (n < updates.size() &&
           (needs_norm(facts_.job) ||
            std::accumulate(updates.begin() + n, updates.end(), std::uint64_t{0}) > backward)) {
      ++n;
    }
    return n;
  }
  void add(schedule::knobs const& k) {
    auto const part = k.defer > 0 ? schedule::segment::resume : schedule::segment::step;
    auto const program = schedule::compile(facts_, layout_, k, rules_.eviction, part);
    REQUIRE(program.has_value());
    auto const durations = sim::durations_of(*program, facts_, pace_);
    all_.push_back({.found = true,
                    .time = sim::simulate(*program, durations, pace_).finish.value,
                    .device = extent(*program, space::device),
                    .host = extent(*program, space::host)});
  }

  trace::trace const& facts_;
  hw::machine const& machine_;
  test::any_bundle const& rules_;
  sim::pace pace_;
  std::uint32_t interval_;
  std::vector<chunk::benefit> benefits_{};
  chunk::layout layout_{};
  std::vector<std::vector<activation::strategy>> strategies_{};
  std::vector<outcome> all_{};
};

/// A budget between the least that any plan needs and what the fastest one takes.
plan::budget random_budget(test::random_source& r, test::planning_case const& c) {
  plan::budget out = test::everything();
  auto const fastest = plan::search(c.facts, c.machine, out, c.rules);
  REQUIRE(fastest.has_value());
  auto const none = plan::search(c.facts, c.machine, {.gpu = {0}, .host = out.host}, c.rules);
  std::uint64_t const least = none ? 0 : none.failure().needs_device;
  std::uint64_t const most = std::max(fastest->predicted.device.peak, least);
  out.gpu = {r.between(least, most)};
  if (r.chance(30)) {
    out.host = {r.between(0, 2 * fastest->predicted.host.peak)};
  }
  return out;
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

TEST_CASE("the search equals an exhaustive loop") {
  std::uint64_t feasible = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(300); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 4);
    test::random_source r(seed);
    plan::budget const b = random_budget(r, c);
    auto const found = plan::search(c.facts, c.machine, b, c.rules);
    auto const any = plan::search(c.facts, c.machine, test::everything(), c.rules);
    outcome const best =
        exhaustive(c, any->at.interval).best(b.gpu.value - c.facts.outside.value, b.host.value);
    REQUIRE(found.has_value() == best.found);
    if (found) {
      ++feasible;
      REQUIRE(found->search.proven);
      REQUIRE(found->predicted.iteration.value == best.time);
      REQUIRE(found->predicted.device.peak <= best.device);
      // With the slots that the loop's plans have.
      auto like = plan::parse(found->string().view(), c.facts.job);
      REQUIRE(like.has_value());
      if (found->at.streamed > 0) {
        like->streaming_slots = plan::default_streaming_slots;
      }
      auto const usual = plan::make(c.facts, c.machine, test::everything(), c.rules, *like);
      REQUIRE(usual.has_value());
      REQUIRE(usual->predicted.iteration.value == best.time);
      REQUIRE(usual->predicted.device.peak == best.device);
    }
  }
  CHECK(feasible > 0);
}

TEST_CASE("the search equals an exhaustive loop where work slows other work") {
  std::uint64_t slower = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(200); ++seed) {
    CAPTURE(seed);
    test::planning_case c = test::make_planning_case(seed, 4);
    test::random_source r(seed ^ 0xC0417ULL);
    c.machine = test::with_contention(r, c.machine);
    plan::budget const b = random_budget(r, c);
    auto const found = plan::search(c.facts, c.machine, b, c.rules);
    auto const any = plan::search(c.facts, c.machine, test::everything(), c.rules);
    outcome const best =
        exhaustive(c, any->at.interval).best(b.gpu.value - c.facts.outside.value, b.host.value);
    REQUIRE(found.has_value() == best.found);
    if (found) {
      REQUIRE(found->search.proven);
      REQUIRE(found->predicted.iteration.value == best.time);
      REQUIRE(found->predicted.bound <= found->predicted.iteration);
      auto const alone = plan::search(c.facts, c.machine, b, c.rules.with(link::fixed{}));
      REQUIRE(alone->predicted.iteration <= found->predicted.iteration);
      slower += alone->predicted.iteration < found->predicted.iteration ? 1U : 0U;
    }
  }
  CHECK(slower > 0);
}

TEST_CASE(
    "automatic placement loses to a fixed one: never, and it is verified and within its budget") {
  for (std::uint64_t seed = 0; seed < test::scaled(400); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 8);
    test::random_source r(seed);
    plan::budget const b = random_budget(r, c);
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
    plan::budget const b = random_budget(r, c);
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
      // The length of programs offloads nothing. How many updates are left to the next step isn't
      // searched: it follows from the other knobs, and here it stays as it was.
      if (e.knob == "unroll" || found->at.defer > 0) {
        continue;
      }
      // Slots aren't searched, only given back where that costs no time.
      bool const slower = e.knob == "slots" ? e.iteration != found->predicted.iteration
                                            : e.iteration > found->predicted.iteration;
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
  plan::limits const patient{.proof = std::uint64_t{1} << 40U};  // proven, however long it takes
  for (std::uint64_t seed = 0; seed < test::scaled(200); ++seed) {
    CAPTURE(seed);
    test::planning_case const c = test::make_planning_case(seed, 6);
    test::random_source r(seed);
    plan::budget b = random_budget(r, c);
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
    auto const found = plan::search(c.facts, c.machine, random_budget(r, c), c.rules);
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
