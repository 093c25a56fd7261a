// SPDX-License-Identifier: Apache-2.0
// Each knob's effect on time and peaks, against the program of the plan without it.

#include "protrain/plan/effects.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace effects_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

constexpr plan::budget roomy{.gpu = 1_GiB, .host = 8_GiB, .reserve = 0_B};

/// Eight blocks of 1 MiB of values, which may drop half of what they save.
trace::trace job() {
  trace::trace t{.job = {.micro_batch = 1, .sequence = 8, .accumulate = 2}};
  trace::block_shape body{.name = "block",
                          .forward = 300_us,
                          .backward = 600_us,
                          .input = 64_KiB,
                          .output = 64_KiB,
                          .saved = 512_KiB,
                          .scratch_forward = 32_KiB,
                          .scratch_backward = 64_KiB};
  trace::block_shape first = body;
  first.input = {};
  trace::block_shape last = body;
  last.output = {};
  t.shapes = {first, body, last};
  for (std::uint32_t b = 0; b < 8; ++b) {
    t.blocks.push_back(shape_id{b == 0 ? 0U : (b == 7 ? 2U : 1U)});
    t.parameters.push_back({.name = "w", .shape = {256, 1024}, .uses = {block_id{b}}});
  }
  t.batch = 4_KiB;
  return t;
}

plan::plan planned(char const* string) {
  auto const wanted = plan::parse(string, job().job);
  REQUIRE(wanted.has_value());
  auto const p = plan::make(job(), hw::host_demo(), roomy, plan::policies<>{}, *wanted);
  REQUIRE(p.has_value());
  return *p;
}

plan::knob_effect const* of(std::vector<plan::knob_effect> const& all, std::string_view knob) {
  auto const at = std::ranges::find(all, knob, &plan::knob_effect::knob);
  return at == all.end() ? nullptr : &*at;
}

TEST_CASE("every knob that is turned has an effect, which the program without it shows") {
  plan::plan const p = planned(
      "persist=2,buffer=4,swap=2,checkpoint=3,interval=2,update=split:2,defer=1,slots=2:2,"
      "time=before_next_use");
  std::vector<plan::knob_effect> const all = plan::effects(p, hw::host_demo());
  for (char const* const knob :
       {"persist", "buffer", "swap", "checkpoint", "update", "defer", "slots", "unroll"}) {
    CAPTURE(std::string(knob));
    plan::knob_effect const* const e = of(all, knob);
    REQUIRE(e != nullptr);
    auto const wanted = plan::parse(plan::print(e->at).view(), job().job);
    REQUIRE(wanted.has_value());
    auto const other = plan::make(job(), hw::host_demo(), roomy, plan::policies<>{}, *wanted);
    REQUIRE(other.has_value());
    CHECK(other->at == e->at);
    CHECK(other->predicted.iteration == e->iteration);
    schedule::memory_report device;
    schedule::memory_report host;
    auto const programs = other->segments();
    REQUIRE(programs.has_value());
    for (schedule::program const& one : *programs) {
      schedule::follow(device, schedule::memory_of(one, space::device));
      schedule::follow(host, schedule::memory_of(one, space::host));
    }
    CHECK(e->device_peak.value == device.peak);
    CHECK(e->host_peak.value == host.peak);
  }
}

TEST_CASE("only the knob itself is turned") {
  plan::plan const p =
      planned("persist=2,buffer=4,swap=2,checkpoint=3,interval=2,update=split:2,slots=2:2");
  std::vector<plan::knob_effect> const all = plan::effects(p, hw::host_demo());
  REQUIRE(of(all, "swap") != nullptr);
  plan::numbers without = of(all, "swap")->at;
  CHECK(without.swap == 0);
  without.swap = p.at.swap;
  without.interval = p.at.interval;
  CHECK(without == p.at);
  REQUIRE(of(all, "checkpoint") != nullptr);
  CHECK(of(all, "checkpoint")->at.checkpoint == 0);
  CHECK(of(all, "checkpoint")->at.persist == 2);
  CHECK(of(all, "checkpoint")->device_peak.value > p.predicted.device.peak);
  REQUIRE(of(all, "persist") != nullptr);
  CHECK(of(all, "persist")->host_peak.value > p.predicted.host.peak);
}

TEST_CASE("knobs at rest have no effect") {
  plan::plan const p = planned("keep_all");
  for (plan::knob_effect const& e : plan::effects(p, hw::host_demo())) {
    CAPTURE(std::string(e.knob));
    CHECK((e.knob == "persist" || e.knob == "unroll" || e.knob == "slots"));
  }
}

TEST_CASE("more than the budget may be the effect") {
  auto const wanted = plan::parse("persist=2,buffer=4,swap=2,checkpoint=3,interval=2", job().job);
  REQUIRE(wanted.has_value());
  plan::budget tight{.gpu = 64_MiB, .host = 8_GiB};
  auto p = plan::make(job(), hw::host_demo(), tight, policies<>{}, *wanted);
  REQUIRE(p.has_value());
  tight.gpu = {p->predicted.device.peak};
  p = plan::make(job(), hw::host_demo(), tight, policies<>{}, *wanted);
  REQUIRE(p.has_value());
  bool above = false;
  for (plan::knob_effect const& e : plan::effects(*p, hw::host_demo())) {
    above = above || e.device_peak > tight.gpu;
  }
  CHECK(above);
}

TEST_CASE("policies that place save levels") {
  trace::trace t = job();
  for (trace::block_shape& s : t.shapes) {
    s.levels.push_back({.name = "half", .saved = 256_KiB, .rebuilt = 256_KiB, .rebuild = 50_us});
  }
  constexpr auto rules = plan::policies<>{}.with(activation::levels{});
  auto const wanted = plan::parse("persist=8,swap=0,checkpoint=0,levels=3", t.job);
  REQUIRE(wanted.has_value());
  auto const p = plan::make(t, hw::host_demo(), roomy, rules, *wanted);
  REQUIRE(p.has_value());
  std::vector<plan::knob_effect> const all = plan::effects(*p, hw::host_demo(), rules);
  REQUIRE(of(all, "levels") != nullptr);
  CHECK(of(all, "levels")->at.levels[0] == 0);
  CHECK(of(all, "levels")->device_peak.value > p->predicted.device.peak);
}

}  // namespace

}  // namespace effects_test
