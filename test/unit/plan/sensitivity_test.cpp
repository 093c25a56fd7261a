// SPDX-License-Identifier: Apache-2.0
// What a little more would buy: each answer against the search that it stands for.

#include "protrain/plan/sensitivity.hpp"

#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/analytic.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string_view>

namespace sensitivity_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

constexpr plan::budget tight{.gpu = 192_MiB, .host = 4_GiB};

trace::trace facts(std::uint64_t world, hw::machine const& m) {
  return trace::analytic(
      {.layers = 8, .hidden = 512, .heads = 8, .inner = 1408, .vocabulary = 4000},
      {.micro_batch = 4,
       .sequence = 512,
       .world = world,
       .type = dtype::bf16,
       .state = model::state_format::split_master},
      m);
}

plan::request wanted(char const* string) {
  auto const r = plan::parse(string);
  REQUIRE(r.has_value());
  return *r;
}

plan::plan planned(std::uint64_t world,
                   hw::machine const& m,
                   plan::budget const& b,
                   char const* string = "auto") {
  auto const p = plan::make(facts(world, m), m, b, policies<>{}, wanted(string));
  REQUIRE(p.has_value());
  return *p;
}

/// Copies so slow that they bound everything.
hw::machine slow_bus() {
  hw::machine m = hw::rtx3090x4();
  m.host_to_device = {m.host_to_device.per_second / 10};
  m.device_to_host = {m.device_to_host.per_second / 10};
  m.concurrent = {};
  return m;
}

}  // namespace

TEST_CASE("ten percent more of every rate between host and device, and of nothing else") {
  for (hw::machine const& m : {hw::h200x4(), hw::rtx3090x4(), hw::host_demo()}) {
    hw::machine const faster = plan::with_faster_copies(m);
    auto const tenth = [](bandwidth more, bandwidth less) {
      CHECK(more.per_second == less.per_second + less.per_second / 10);
    };
    auto const both = [&](hw::copy_rates const& more, hw::copy_rates const& less) {
      tenth(more.host_to_device, less.host_to_device);
      tenth(more.device_to_host, less.device_to_host);
    };
    tenth(faster.host_to_device, m.host_to_device);
    tenth(faster.device_to_host, m.device_to_host);
    both(faster.concurrent.both_ways, m.concurrent.both_ways);
    both(faster.concurrent.beside_compute, m.concurrent.beside_compute);
    both(faster.concurrent.beside_update, m.concurrent.beside_update);
    both(faster.concurrent.all_ranks, m.concurrent.all_ranks);
    hw::machine same = faster;
    same.host_to_device = m.host_to_device;
    same.device_to_host = m.device_to_host;
    bandwidth const update = faster.concurrent.update_beside_copies;
    same.concurrent = m.concurrent;
    same.concurrent.update_beside_copies = update;
    CHECK(same == m);
  }
  hw::machine endless = hw::host_demo();
  endless.host_to_device = {std::numeric_limits<std::uint64_t>::max() - 5};
  CHECK(plan::with_faster_copies(endless).host_to_device.per_second ==
        std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("bandwidth: what the search finds on the faster machine") {
  hw::machine const m = slow_bus();
  plan::plan const p = planned(1, m, tight);
  plan::sensitivity const s = plan::more_bandwidth(p, m, tight);
  auto const next = plan::search(p.trace, plan::with_faster_copies(m), tight);
  REQUIRE(next.has_value());
  CHECK(s.saved.value > 0);
  CHECK(s.iteration == next->predicted.iteration);
  CHECK(s.at == next->at);
  CHECK(s.saved + s.iteration == p.predicted.iteration);
}

TEST_CASE("bandwidth: a plan that is asked for is kept, and one that moves nothing gains nothing") {
  hw::machine const m = slow_bus();
  plan::budget const roomy{.gpu = 4_GiB, .host = 4_GiB};
  plan::plan const moves = planned(1, m, roomy, "offload_all");
  auto const s = plan::more_bandwidth(moves, m, roomy, policies<>{}, wanted("offload_all"));
  CHECK(s.at == moves.at);
  // Nearly all of the step waits for copies, and they take a tenth less.
  CHECK(s.saved * 14 > moves.predicted.iteration);
  CHECK(s.saved * 11 < moves.predicted.iteration);
  // A search that meets its limits at once doesn't hide that the plan at hand is faster.
  plan::limits const few{.programs = 1, .refinements = 0, .instructions = 1};
  CHECK(plan::more_bandwidth(moves, m, roomy, policies<>{}, {}, few).saved >= s.saved);
  plan::plan const stays = planned(1, hw::h200x1(), roomy, "keep_all");
  auto const t = plan::more_bandwidth(stays, hw::h200x1(), roomy, policies<>{}, wanted("keep_all"));
  CHECK(t.saved * 1000 < stays.predicted.iteration);  // batch and loss
}

TEST_CASE("memory: what the search finds with more, up to the largest number there is") {
  hw::machine const m = slow_bus();
  plan::plan const p = planned(1, m, tight);
  plan::sensitivity const s = plan::more_memory(p, m, tight);
  CHECK(s.more == 48_MiB);
  auto const next = plan::search(p.trace, m, {.gpu = 240_MiB, .host = 4_GiB});
  REQUIRE(next.has_value());
  CHECK(s.saved.value > 0);
  CHECK(s.iteration == next->predicted.iteration);
  CHECK(s.at == next->at);
  plan::budget const all{.gpu = {std::numeric_limits<std::uint64_t>::max() - 7}, .host = 4_GiB};
  CHECK(plan::more_memory(planned(1, m, all), m, all).more == 7_B);
  plan::budget const large{.gpu = 40_GiB, .host = 4_GiB};
  CHECK(plan::more_memory(planned(1, m, large), m, large).more == 1_GiB);
}

TEST_CASE("only a job's world depends on the number of ranks: another trace isn't needed") {
  for (hw::machine const& m : {hw::rtx3090x4(), hw::a100x4x4nodes(), hw::h200x1()}) {
    for (std::uint64_t world = 1; world < 6; ++world) {
      CHECK(plan::with_world(facts(world, m), world + 1) == facts(world + 1, m));
    }
  }
}

TEST_CASE("a rank more: the plan of that job, with its tokens") {
  hw::machine const m = hw::rtx3090x4();
  plan::plan const p = planned(3, m, tight);
  plan::another_rank const r = plan::one_rank_more(p, m, tight);
  auto const next = plan::search(facts(4, m), m, tight);
  REQUIRE(next.has_value());
  CHECK(r.world == 4);
  CHECK(r.fits);
  CHECK(r.tokens == 4 * 4 * 512);
  CHECK(r.at == next->at);
  CHECK(r.iteration == next->predicted.iteration);
  plan::budget const roomy{.gpu = 4_GiB, .host = 4_GiB};
  auto const fixed = plan::one_rank_more(p, m, roomy, policies<>{}, wanted("offload_all"));
  auto const offloaded = plan::make(facts(4, m), m, roomy, policies<>{}, wanted("offload_all"));
  REQUIRE(offloaded.has_value());
  CHECK(fixed.at == offloaded->at);
}

TEST_CASE("a rank more: none where the machine has no device, and on all hosts where it has") {
  auto const world = [](std::uint64_t ranks, hw::machine const& m) {
    return plan::one_rank_more(planned(ranks, m, {.gpu = 4_GiB, .host = 16_GiB}, "keep_all"),
                               m,
                               {.gpu = 4_GiB, .host = 16_GiB},
                               policies<>{},
                               wanted("keep_all"))
        .world;
  };
  CHECK(world(4, hw::rtx3090x4()) == 0);
  CHECK(world(5, hw::rtx3090x4()) == 0);  // planned all the same
  CHECK(world(1, hw::h200x1()) == 0);
  CHECK(world(4, hw::a100x4x4nodes()) == 5);
  CHECK(world(15, hw::a100x4x4nodes()) == 16);
  CHECK(world(16, hw::a100x4x4nodes()) == 0);
}

TEST_CASE("a rank more: where the host's memory is full of one rank's, it says what is short") {
  hw::machine const m = hw::rtx3090x4();
  char const* const string = "swap=4,checkpoint=0";
  plan::budget b{.gpu = 4_GiB, .host = 4_GiB};
  b.host.value = planned(1, m, b, string).predicted.host.peak;
  plan::plan const p = planned(1, m, b, string);
  auto const r =
      plan::one_rank_more(p, m, b, policies<>{}, wanted("persist=0,swap=8,checkpoint=0"));
  CHECK(r.world == 2);
  CHECK_FALSE(r.fits);
  CHECK(r.lacks.short_host > 0);
}

TEST_CASE("an explanation has all three, also in words") {
  hw::machine const m = slow_bus();
  plan::plan const p = planned(3, m, tight);
  plan::explanation const e = plan::explain(p, m, tight);
  CHECK(e.gpu == plan::more_memory(p, m, tight));
  CHECK(e.bandwidth == plan::more_bandwidth(p, m, tight));
  CHECK(e.rank == plan::one_rank_more(p, m, tight));
  auto const says = [](plan::explanation const& of, std::string_view what) {
    return of.why.view().find(what) != std::string_view::npos;
  };
  CHECK(says(e, "48MiB more of GPU memory saves "));
  CHECK(says(e, "10 % more bandwidth to and from the host saves "));
  CHECK(says(e, "on a rank more 8192 tokens take "));
  plan::plan const last = planned(4, m, tight);
  CHECK(says(plan::explain(last, m, tight), "the machine has no device for another rank"));
}

}  // namespace sensitivity_test
