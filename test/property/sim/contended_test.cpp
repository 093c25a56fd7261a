// SPDX-License-Identifier: Apache-2.0
// Simulation under contention, over random programs and machines: against an event loop in floating
// point written the obvious way, against bounds and uncontended times, and what more bandwidth does.

#include "protrain/sim/detail/contended.hpp"

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "test/support/random_contention.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace contended_test {

namespace {

using namespace protrain;
using schedule::opcode;

struct subject {
  trace::trace facts;
  hw::machine machine;
  std::vector<schedule::program> programs;

  std::uint64_t world() const { return facts.job.world; }
  template <class Policy>
  sim::pace pace(Policy const& policy) const {
    return {machine, policy, world()};
  }
};

/// Odd seeds: several ranks, some of them on one host, and steps that begin with updates left over.
subject make_subject(std::uint64_t seed) {
  bool const ranked = seed % 2 != 0;
  test::random_case c = ranked ? test::make_ranked_case(seed) : test::make_case(seed);
  test::random_source r(seed ^ 0xC0417ULL);
  hw::machine m = test::random_rates(r);
  m = ranked ? test::with_ranks(r, m) : m;
  auto programs = schedule::compile_step(c.facts, c.layout, c.knobs, c.eviction, ranked);
  REQUIRE(programs.has_value());
  return {std::move(c.facts), test::with_contention(r, m), *std::move(programs)};
}

/// The channel of an instruction; none for a pass of a block.
std::optional<link::channel> channel_of(schedule::instruction const& i) {
  switch (i.op) {
    case opcode::forward:
    case opcode::recompute:
    case opcode::rebuild:
    case opcode::backward:
      return std::nullopt;
    case opcode::batch_load:
    case opcode::upload:
    case opcode::swap_in:
    case opcode::scalars_upload:
    case opcode::state_in:
      return link::channel::host_to_device;
    case opcode::swap_out:
    case opcode::offload:
    case opcode::norm_read:
    case opcode::loss_read:
    case opcode::state_out:
      return link::channel::device_to_host;
    case opcode::gather:
    case opcode::reduce:
    case opcode::norm_exchange:
    case opcode::loss_exchange:
      return link::channel::collective;
    default:
      return i.queue == queue_id::cpu ? link::channel::host_memory : link::channel::device_memory;
  }
}

/// The obvious event loop, which does not round.
class floating_loop {
 public:
  floating_loop(subject const& s,
                schedule::program const& p,
                std::vector<picoseconds> const& durations)
      : subject_(s), program_(p), ends_(p.instructions.size(), -1) {
    for (picoseconds const d : durations) {
      left_.push_back(static_cast<long double>(d.value));
    }
  }

  long double finish() {
    std::vector<std::uint32_t> running = start();
    while (!running.empty()) {
      std::vector<long double> speeds;
      long double soonest = -1;
      for (std::uint32_t const i : running) {
        speeds.push_back(speed(i, running));
        long double const takes = left_[i] / speeds.back();
        soonest = soonest < 0 ? takes : std::min(soonest, takes);
      }
      now_ += soonest;
      for (std::size_t k = 0; k < running.size(); ++k) {
        std::uint32_t const i = running[k];
        left_[i] -= soonest * speeds[k];
        if (left_[i] < 1e-6L) {
          ends_[i] = now_;
        }
      }
      running = start();
    }
    return now_;
  }

 private:
  /// What runs now: the first of each queue that hasn't ended, if all that it needs has.
  std::vector<std::uint32_t> start() {
    std::array<bool, queue_count> taken{};
    std::vector<std::uint32_t> out;
    for (std::uint32_t i = 0; i < ends_.size(); ++i) {
      bool& queue = taken[static_cast<std::size_t>(program_.instructions[i].queue)];
      if (ends_[i] >= 0 || queue) {
        continue;
      }
      auto const needs = program_.dependencies_of(program_.instructions[i]);
      bool const ready = std::ranges::all_of(needs, [&](std::uint32_t d) { return ends_[d] >= 0; });
      if (ready && left_[i] <= 0) {
        ends_[i] = now_;
        return start();
      }
      queue = true;
      if (ready) {
        out.push_back(i);
      }
    }
    return out;
  }
  long double speed(std::uint32_t i, std::vector<std::uint32_t> const& running) const {
    auto const mine = channel_of(program_.instructions[i]);
    if (!mine) {
      return 1;
    }
    link::load all{};
    for (std::uint32_t const other : running) {
      auto const c = channel_of(program_.instructions[other]);
      all.compute += c ? 0U : 1U;
      all.host_to_device += c == link::channel::host_to_device ? 1U : 0U;
      all.device_to_host += c == link::channel::device_to_host ? 1U : 0U;
      all.collective += c == link::channel::collective ? 1U : 0U;
      all.device_memory += c == link::channel::device_memory ? 1U : 0U;
      all.host_memory += c == link::channel::host_memory ? 1U : 0U;
    }
    auto const rate = [&](bandwidth whole) {
      return static_cast<long double>(
          cost::rate_of_rank(subject_.machine, *mine, whole, subject_.world()).per_second);
    };
    return rate(link::shared{}.rate_among(subject_.machine, *mine, all)) /
           rate(link::fixed{}.rate(subject_.machine, *mine));
  }

  subject const& subject_;
  schedule::program const& program_;
  std::vector<long double> ends_;  ///< negative: not yet
  std::vector<long double> left_{};
  long double now_ = 0;
};

/// What holds of any timeline.
void check_sums(schedule::program const& p, sim::timeline const& t) {
  picoseconds phases{};
  for (std::size_t k = 0; k < sim::phase_count; ++k) {
    picoseconds critical{};
    for (picoseconds const share : t.critical[k]) {
      critical += share;
    }
    REQUIRE(critical == t.phases[k]);
    phases += t.phases[k];
  }
  REQUIRE(phases == t.finish);
  sim::per_queue<picoseconds> busy{};
  sim::per_queue<picoseconds> before{};
  for (std::size_t i = 0; i < t.at.size(); ++i) {
    auto const q = static_cast<std::size_t>(p.instructions[i].queue);
    REQUIRE(t.at[i].start >= before[q]);
    for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
      REQUIRE(t.at[i].start >= t.at[d].end);
    }
    busy[q] += t.at[i].end - t.at[i].start;
    before[q] = t.at[i].end;
  }
  REQUIRE(busy == t.busy);
  for (std::size_t q = 0; q < queue_count; ++q) {
    REQUIRE(t.exposed[q] <= t.busy[q]);
    REQUIRE(t.busy[q] <= t.finish);
  }
}

/// Contended, but only by what a job of one rank never does.
struct idle_threat {
  using policy_tag = link::bandwidth_tag;
  bandwidth rate(hw::machine const& m, link::channel c) const noexcept {
    return link::fixed{}.rate(m, c);
  }
  bandwidth rate_among(hw::machine const& m, link::channel c, link::load const& l) const noexcept {
    return {rate(m, c).per_second / (l.collective == 3 ? 2 : 1)};
  }
  bool operator==(idle_threat const&) const = default;
};

}  // namespace

TEST_CASE("contention makes no program faster and leaves it above its bound") {
  std::uint64_t slower = 0;
  std::uint64_t programs = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(10'000); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    sim::pace const pace = s.pace(link::shared{});
    for (schedule::program const& p : s.programs) {
      auto const durations = sim::durations_of(p, s.facts, pace);
      REQUIRE(durations == sim::durations_of(p, s.facts, s.machine));
      sim::timeline const t = sim::simulate(p, durations, pace);
      sim::timeline const alone = sim::simulate(p, durations);
      REQUIRE(t.finish >= alone.finish);
      REQUIRE(t.finish >= cost::lower_bound(p, durations));
      for (std::size_t i = 0; i < durations.size(); ++i) {
        REQUIRE(t.at[i].end - t.at[i].start >= durations[i]);
        REQUIRE(t.at[i].start >= alone.at[i].start);
      }
      check_sums(p, t);
      REQUIRE(sim::finish_of(p, durations, pace) == t.finish);
      REQUIRE(sim::simulate(p, durations, s.pace(link::shared{})) == t);
      slower += t.finish > alone.finish ? 1U : 0U;
      ++programs;
    }
  }
  MESSAGE("contention slowed ", slower, " of ", programs, " programs");
  CHECK(slower > programs / 2);
}

TEST_CASE("times are those of an event loop that does not round") {
  for (std::uint64_t seed = 0; seed < test::scaled(2'000); ++seed) {
    CAPTURE(seed);
    subject const s = make_subject(seed);
    sim::pace const pace = s.pace(link::shared{});
    for (schedule::program const& p : s.programs) {
      auto durations = sim::durations_of(p, s.facts, pace);
      for (picoseconds& d : durations) {
        d = d * 1'000'000;  // so that a picosecond is nothing
      }
      auto const exact = floating_loop(s, p, durations).finish();
      auto const found = static_cast<long double>(sim::finish_of(p, durations, pace).value);
      auto const roundings = static_cast<long double>(p.instructions.size());
      REQUIRE(std::abs(found - exact) <= 100 * roundings);
    }
  }
}

TEST_CASE("where nothing is slowed, events and one pass agree on everything") {
  for (std::uint64_t seed = 0; seed < test::scaled(2'000); ++seed) {
    CAPTURE(seed);
    subject s = make_subject(seed);
    sim::pace const events = s.pace(idle_threat{});
    REQUIRE(events.contended());
    s.machine.concurrent = {.all_ranks = s.machine.concurrent.all_ranks};
    sim::pace const pace = s.pace(link::shared{});
    REQUIRE(!pace.contended());
    for (schedule::program const& p : s.programs) {
      auto const durations = sim::durations_of(p, s.facts, s.machine);
      REQUIRE(sim::durations_of(p, s.facts, pace) == durations);
      sim::timeline const fixed = sim::simulate(p, durations);
      REQUIRE(sim::simulate(p, durations, pace) == fixed);
      REQUIRE(sim::simulate(p, durations, s.pace(link::fixed{})) == fixed);
      REQUIRE((s.world() > 1 || sim::simulate(p, durations, events) == fixed));
      REQUIRE(sim::finish_of(p, durations, pace) == fixed.finish);
    }
  }
}

namespace {

/// Some rates of the machine and what goes with them are higher.
hw::machine with_more_bandwidth(test::random_source& r, hw::machine m) {
  hw::concurrent_rates& c = m.concurrent;
  auto const grow = [&](auto const&... rates) {
    if (r.chance(40)) {
      std::uint64_t const percent = r.between(101, 300);
      ((rates->per_second = mul_div(rates->per_second, percent, 100)), ...);
    }
  };
  grow(&m.host_to_device,
       &c.both_ways.host_to_device,
       &c.beside_compute.host_to_device,
       &c.beside_update.host_to_device,
       &c.all_ranks.host_to_device);
  grow(&m.device_to_host,
       &c.both_ways.device_to_host,
       &c.beside_compute.device_to_host,
       &c.beside_update.device_to_host,
       &c.all_ranks.device_to_host);
  grow(&m.host_bandwidth, &c.update_beside_copies);
  grow(&m.collective);
  grow(&m.device_bandwidth);
  return m;
}

/// Programs that were slower with more bandwidth, and how much the worst.
struct anomalies {
  std::uint64_t count = 0;
  std::uint64_t worst_per_million = 0;

  void take(picoseconds less, picoseconds more) {
    if (more > less) {
      ++count;
      std::uint64_t const by = mul_div((more - less).value, 1'000'000, less.value);
      worst_per_million = std::max(worst_per_million, by);
    }
  }
};

template <class Policy>
picoseconds finish_under(Policy const& policy,
                         hw::machine const& m,
                         trace::trace const& facts,
                         schedule::program const& p) {
  sim::pace const pace(m, policy, facts.job.world);
  return sim::finish_of(p, sim::durations_of(p, facts, pace), pace);
}

template <class Policy>
anomalies search_anomalies(Policy const& policy, std::uint64_t cases) {
  anomalies out;
  for (std::uint64_t seed = 0; seed < cases; ++seed) {
    subject const s = make_subject(seed);
    test::random_source r(seed ^ 0xFA57E4ULL);
    hw::machine const more = with_more_bandwidth(r, s.machine);
    for (schedule::program const& p : s.programs) {
      out.take(finish_under(policy, s.machine, s.facts, p), finish_under(policy, more, s.facts, p));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("more bandwidth makes no program slower under fixed; elsewhere the worst is printed") {
  std::uint64_t const cases = test::scaled(5'000);
  CHECK(search_anomalies(link::fixed{}, cases).count == 0);
  auto const print = [&](std::string const& name, anomalies const& a) {
    MESSAGE(name,
            ": ",
            a.count,
            " programs of ",
            cases,
            " steps were slower with more bandwidth, at worst by ",
            static_cast<double>(a.worst_per_million) / 10'000,
            " %");
  };
  print("derated", search_anomalies(link::derated{}, cases));
  print("shared", search_anomalies(link::shared{}, cases));
}

}  // namespace contended_test
