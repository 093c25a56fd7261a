// SPDX-License-Identifier: Apache-2.0
// Planning one job that is small enough to reason about: requests, clamping, refusals, reports.

#include "protrain/plan/search.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace search_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

/// Eight equal blocks of 256 Ki elements, 1 MiB in fp32.
trace::trace job(float clip = 0) {
  trace::trace t{.job = {.micro_batch = 1, .sequence = 8, .clip = clip}};
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

constexpr plan::budget roomy{.gpu = 1_GiB, .host = 8_GiB, .reserve = 0_B};

plan::request wanted(char const* s) {
  auto const r = plan::parse(s);
  REQUIRE(r.has_value());
  return *r;
}

std::vector<std::string_view> views(std::vector<text> const& lines) {
  std::vector<std::string_view> out;
  for (text const& line : lines) {
    out.push_back(line.view());
  }
  return out;
}

}  // namespace

TEST_CASE("accumulation grows neither programs nor the device's memory") {
  auto const made = [](std::uint64_t accumulate, char const* fixed) {
    trace::trace t = job(1);
    t.job.accumulate = accumulate;
    auto p = plan::make(t, hw::host_demo(), roomy, plan::policies<>{}, wanted(fixed));
    REQUIRE(p.has_value());
    return *std::move(p);
  };
  char const* const offloads = "persist=2,buffer=3,swap=1,checkpoint=2,interval=1";
  auto const four = made(4, offloads);
  auto const many = made(400, offloads);
  CHECK(many.predicted.device.peak == four.predicted.device.peak);
  CHECK(many.predicted.device.maximum == four.predicted.device.maximum);
  // 100 programs of four micro-batches, of which only the last one updates.
  CHECK(many.predicted.iteration > four.predicted.iteration * 90);
  CHECK(many.predicted.iteration < four.predicted.iteration * 100);
  CHECK(many.predicted.iteration >= many.predicted.bound);
  picoseconds sum{};
  for (picoseconds const part : many.predicted.phases) {
    sum += part;
  }
  CHECK(sum == many.predicted.iteration);
  REQUIRE(many.segments().has_value());
  CHECK(many.segments()->size() == 6);
  CHECK_FALSE(many.compile().has_value());

  auto const single = made(400, "persist=2,buffer=3,swap=1,checkpoint=2,interval=1,unroll=1");
  CHECK(single.string().view().ends_with(",unroll=1"));
  CHECK(single.knobs.unroll == 1);
  CHECK(single.predicted.device.peak <= many.predicted.device.peak);
  CHECK(single.predicted.iteration > many.predicted.iteration);
  CHECK(four.string().view().find("unroll") == std::string_view::npos);
  CHECK(views(made(4, "unroll=0").changed) == std::vector<std::string_view>{"unroll 0 -> 1"});
}

TEST_CASE("with room for everything nothing moves") {
  trace::trace const t = job();
  auto const p = plan::search(t, hw::host_demo(), roomy);
  REQUIRE(p.has_value());
  CHECK(p->search.proven);
  CHECK(p->predicted.bound_by == queue_id::compute);
  CHECK(p->predicted.iteration >= 7200_us);
  CHECK(p->trace == t);
  CHECK(!p->runner_up.empty());
  CHECK(p->sizing == text("policy"));
}

TEST_CASE("fixed keys are kept") {
  auto const p = plan::make(job(),
                            hw::host_demo(),
                            roomy,
                            policies<>{},
                            wanted("persist=2,buffer=4,swap=1,checkpoint=3,interval=2,slots=3:0,"
                                   "chunk=2MiB,time=after_backward"));
  REQUIRE(p.has_value());
  CHECK(p->at.persist == 2);
  CHECK(p->at.buffer == 2);  // four chunks of two blocks, two of them persistent
  CHECK(p->at.swap == 1);
  CHECK(p->at.checkpoint == 3);
  CHECK(p->at.interval == 2);
  CHECK(p->at.gradient_slots == 3);
  CHECK(p->at.time == update::timing::after_backward);
  CHECK(p->layout.chunks.size() == 4);
  CHECK(views(p->changed) == std::vector<std::string_view>{"buffer 4 -> 2"});
}

TEST_CASE("values beyond a limit mean the limit, and what changed is told") {
  auto const p = plan::make(
      job(),
      hw::host_demo(),
      roomy,
      policies<>{},
      wanted("persist=999,buffer=7,swap=999,checkpoint=999,interval=0,chunk=1B,slots=1:0"));
  REQUIRE(p.has_value());
  CHECK(views(p->changed) == std::vector<std::string_view>{"persist 999 -> 8",
                                                           "buffer 7 -> 0",
                                                           "swap 999 -> 8",
                                                           "checkpoint 999 -> 0",
                                                           "interval 0 -> 1",
                                                           "chunk 1 -> 512",
                                                           "slots 1 -> 2"});
  auto const low =
      plan::make(job(), hw::host_demo(), roomy, policies<>{}, wanted("persist=0,buffer=0"));
  REQUIRE(low.has_value());
  CHECK(views(low->changed) == std::vector<std::string_view>{"buffer 0 -> 1"});
}

TEST_CASE("the fixed policies are what their names say") {
  auto const keep = plan::make(job(), hw::host_demo(), roomy, policies<>{}, plan::keep_all());
  REQUIRE(keep.has_value());
  CHECK(keep->at.persist == keep->layout.chunks.size());
  CHECK(keep->at.buffer == 0);
  CHECK(keep->at.checkpoint == 0);
  CHECK(keep->changed.empty());
  auto const offload = plan::make(job(), hw::host_demo(), roomy, policies<>{}, plan::offload_all());
  REQUIRE(offload.has_value());
  CHECK(offload->at.persist == 0);
  CHECK(offload->at.buffer == 3);
  auto const again =
      plan::make(job(), hw::host_demo(), roomy, policies<>{}, plan::checkpoint_all());
  REQUIRE(again.has_value());
  CHECK(again->at.checkpoint == 8);
  CHECK(again->predicted.device.peak < keep->predicted.device.peak);
}

TEST_CASE("persistent chunks may be listed") {
  auto const p =
      plan::make(job(), hw::host_demo(), roomy, policies<>{}, wanted("persist=1:3,chunk=1MiB"));
  REQUIRE(p.has_value());
  CHECK(p->at.listed);
  CHECK(p->at.persist == 2);
  CHECK(p->knobs.persistent == std::vector<std::uint8_t>{0, 1, 0, 1, 0, 0, 0, 0});
  CHECK(p->string().view().substr(0, 12) == "persist=1:3,");
  auto const prefix =
      plan::make(job(), hw::host_demo(), roomy, policies<>{}, wanted("persist=0:1,chunk=1MiB"));
  REQUIRE(prefix.has_value());
  CHECK(prefix->string().view().substr(0, 10) == "persist=2,");
  auto const none = plan::make(job(), hw::host_demo(), roomy, policies<>{}, wanted("persist=1:99"));
  REQUIRE(!none.has_value());
  CHECK(none.failure().code == errc::out_of_range);
  CHECK(none.failure().number == 99);
}

TEST_CASE("a fixed plan that does not fit is refused, not changed") {
  plan::budget const tight{.gpu = 12_MiB, .host = 8_GiB};
  auto const kept = plan::make(job(), hw::host_demo(), tight, policies<>{}, plan::keep_all());
  REQUIRE(!kept.has_value());
  CHECK(kept.failure().code == errc::no_device_memory);
  CHECK(kept.failure().nearest.persist > 0);
  auto const free = plan::search(job(), hw::host_demo(), tight);
  REQUIRE(free.has_value());
  CHECK(free->predicted.device.peak <= (12_MiB).value);
}

TEST_CASE("reserve and outside memory count") {
  trace::trace t = job();
  auto const all = plan::search(t, hw::host_demo(), roomy);
  REQUIRE(all.has_value());
  std::uint64_t const peak = all->predicted.device.peak;
  t.outside = 1_MiB;
  plan::budget b{.gpu = bytes{peak} + 3_MiB, .host = 8_GiB, .reserve = 2_MiB};
  CHECK(plan::allowance_of(b, t, hw::host_demo()).device == peak);
  auto const same = plan::search(t, hw::host_demo(), b);
  REQUIRE(same.has_value());
  CHECK(same->at == all->at);
  b.reserve = 1_GiB;
  CHECK(plan::allowance_of(b, t, hw::host_demo()).device == 0);
  auto const none = plan::search(t, hw::host_demo(), b);
  REQUIRE(!none.has_value());
  CHECK(none.failure().needs_device > (1_GiB).value + (1_MiB).value);
}

TEST_CASE("a shortage says where, how much and what would fit") {
  auto const p = plan::search(job(), hw::host_demo(), {.gpu = 1_MiB, .host = 8_GiB});
  REQUIRE(!p.has_value());
  plan::infeasible const& why = p.failure();
  CHECK(why.where() == space::device);
  CHECK(why.needs_device == (1_MiB).value + why.short_bytes());
  CHECK(why.short_host == 0);
  CHECK(why.explanation().view().find("GPU budget is short by") != std::string_view::npos);
  CHECK(why.explanation().view().find("persist=") != std::string_view::npos);
  auto const h = plan::make(
      job(), hw::host_demo(), {.gpu = 1_GiB, .host = 1_KiB}, policies<>{}, plan::offload_all());
  REQUIRE(!h.has_value());
  CHECK(h.failure().where() == space::host);
  CHECK(h.failure().short_device == 0);
  CHECK(h.failure().explanation().view().find("host budget") != std::string_view::npos);
}

TEST_CASE("what the job or the bundle does not allow is refused with a reason") {
  auto const early =
      plan::make(job(1.0F), hw::host_demo(), roomy, policies<>{}, wanted("time=during_backward"));
  REQUIRE(!early.has_value());
  CHECK(early.failure().code == errc::not_allowed);
  CHECK(!early.failure().lacks_memory());
  CHECK(early.failure().explanation().view().find("norm") != std::string_view::npos);
  CHECK(plan::search(job(1.0F), hw::host_demo(), roomy)->at.time ==
        update::timing::before_next_use);
  auto const late = plan::make(
      job(), hw::host_demo(), roomy, policies<>{}, wanted("time=after_backward,defer=0"));
  REQUIRE(late.has_value());
  CHECK(late->at.defer == 0);
  auto const format =
      plan::search(job(), hw::host_demo(), roomy, policies<>{}.with(update::split_master{}));
  REQUIRE(!format.has_value());
  CHECK(format.failure().code == errc::not_allowed);
  CHECK(plan::search(job(), hw::host_demo(), roomy, policies<>{}.with(update::fp32{})).has_value());
  trace::trace ranks = job();
  ranks.job.world = 0;
  CHECK(plan::search(ranks, hw::host_demo(), roomy).failure().code == errc::invalid_argument);
  trace::trace empty = job();
  empty.blocks.clear();
  CHECK(plan::search(empty, hw::host_demo(), roomy).failure().code == errc::invalid_argument);
}

TEST_CASE("a bundle's policies decide") {
  auto const kept =
      plan::search(job(), hw::host_demo(), roomy, policies<>{}.with(activation::keep_all{}));
  REQUIRE(kept.has_value());
  CHECK(kept->at.swap == 0);
  CHECK(kept->at.checkpoint == 0);
  auto const late =
      plan::search(job(), hw::host_demo(), roomy, policies<>{}.with(update::after_backward{}));
  REQUIRE(late.has_value());
  CHECK(late->at.time == update::timing::after_backward);
}

TEST_CASE("streamed updates are as many as are asked for, the first ones") {
  char const* const asked =
      "persist=2,buffer=2,swap=0,checkpoint=0,chunk=1MiB,update=split:3,"
      "slots=2:3";
  auto const p = plan::make(job(1), hw::host_demo(), roomy, policies<>{}, wanted(asked));
  REQUIRE(p.has_value());
  CHECK(p->changed.empty());
  CHECK(p->at.moving == 6);
  CHECK(p->at.streamed == 3);
  CHECK(p->knobs.streaming_slots == 3);
  for (std::size_t c = 0; c < 8; ++c) {
    CHECK(p->knobs.sites[c] == (c < 2   ? update::site::gpu
                                : c < 5 ? update::site::streamed
                                        : update::site::cpu));
  }
  CHECK(p->string().view().find("update=split:3,") != std::string_view::npos);
  CHECK(p->string().view().find("slots=2:3,") != std::string_view::npos);
  auto const again =
      plan::make(job(1), hw::host_demo(), roomy, policies<>{}, *plan::parse(p->string().view()));
  REQUIRE(again.has_value());
  CHECK(again->knobs == p->knobs);
  CHECK(again->string() == p->string());
  auto const changes = [&](char const* keys, auto const& rules) {
    auto const made = plan::make(job(1), hw::host_demo(), roomy, rules, wanted(keys));
    REQUIRE(made.has_value());
    return made->changed;
  };
  using lines = std::vector<text>;
  CHECK(changes("persist=2,chunk=1MiB,update=split:99", policies<>{}) ==
        lines{text("streamed 99 -> 6")});
  CHECK(changes("persist=2,chunk=1MiB,update=streamed", policies<>{}) == lines{});
  CHECK(changes("persist=2,chunk=1MiB,update=split:1,slots=2:0", policies<>{}) ==
        lines{text("streaming slots 0 -> 1")});
  CHECK(changes("persist=2,chunk=1MiB,update=split:3",
                policies<>{}.with(update::gpu_if_persistent{})) == lines{text("streamed 3 -> 0")});
}

/// A policy of a user's: the last chunks, and no more than two.
struct last_two {
  using policy_tag = update::site_tag;
  constexpr std::uint32_t most_streamed(std::uint32_t moving) const noexcept {
    return moving < 2 ? moving : 2;
  }
  constexpr update::site choose(update::site_facts const& c) const noexcept {
    if (c.persistent) {
      return update::site::gpu;
    }
    return c.position + c.streamed < c.moving ? update::site::cpu : update::site::streamed;
  }
  bool operator==(last_two const&) const = default;
};

TEST_CASE("the search splits updates between the sites, as far as the policy lets it") {
  hw::machine quick = hw::host_demo();
  quick.host_to_device = {quick.host_to_device.per_second * 10};
  quick.device_to_host = {quick.device_to_host.per_second * 10};
  auto const fixed = wanted("persist=0,chunk=1MiB");
  auto const cpu =
      plan::make(job(1), quick, roomy, policies<>{}.with(update::gpu_if_persistent{}), fixed);
  auto const both = plan::make(job(1), quick, roomy, policies<>{}, fixed);
  auto const two = plan::make(job(1), quick, roomy, policies<>{}.with(last_two{}), fixed);
  REQUIRE((cpu.has_value() && both.has_value() && two.has_value()));
  CHECK(cpu->at.streamed == 0);
  CHECK(cpu->at.streaming_slots == 0);
  CHECK(both->at.streamed > 0);
  auto const why = plan::explain(*both, quick, roomy, policies<>{}, fixed).why;
  CHECK(why.view().find("are updated on the GPU, the rest on the CPU") != std::string_view::npos);
  CHECK(both->predicted.iteration < cpu->predicted.iteration);
  CHECK(both->predicted.bound <= both->predicted.iteration);
  CHECK((two->at.streamed > 0 && two->at.streamed <= 2));
  CHECK(two->predicted.iteration < cpu->predicted.iteration);
  CHECK(two->knobs.sites[7] == update::site::streamed);
  auto const none =
      plan::make(job(1), quick, roomy, policies<>{}, wanted("persist=0,chunk=1MiB,slots=2:0"));
  REQUIRE(none.has_value());
  CHECK(none->at.streamed == 0);
}

TEST_CASE("levels: what costs little to rebuild is dropped before anything is recomputed") {
  trace::trace t = job();
  for (trace::block_shape& s : t.shapes) {
    s.levels = {{.name = "cheap",
                 .saved = 256_KiB,
                 .rebuilt = 256_KiB,
                 .reads_input = true,
                 .rebuild = 10_us},
                {.name = "deep",
                 .saved = 64_KiB,
                 .rebuilt = 448_KiB,
                 .reads_input = true,
                 .rebuild = 250_us}};
  }
  auto const leveled = policies<>{}.with(activation::levels{});
  auto const all = plan::search(t, hw::host_demo(), roomy, leveled);
  REQUIRE(all.has_value());
  CHECK(all->knobs.levels.empty());
  CHECK(all->string().view().find("levels=0:0") != std::string_view::npos);
  // A little less than keeping everything takes: a block or two are rebuilt.
  plan::budget const tight{.gpu = {all->predicted.device.peak - (1U << 18U)}, .host = 8_GiB};
  auto const some = plan::search(t, hw::host_demo(), tight, leveled);
  auto const plain = plan::search(t, hw::host_demo(), tight);
  REQUIRE(some.has_value());
  REQUIRE(plain.has_value());
  CHECK(some->predicted.iteration < plain->predicted.iteration);
  CHECK(some->at.levels[0] > 0);
  CHECK(some->at.checkpoint == 0);
  CHECK(some->at.depth == 2);
  CHECK(plain->at.depth == 0);
  CHECK(plain->string().view().find("levels") == std::string_view::npos);
  auto const refused = plan::make(t, hw::host_demo(), roomy, policies<>{}, wanted("levels=0:1"));
  REQUIRE_FALSE(refused.has_value());
  CHECK(refused.failure().explanation().view().find("activation::levels") !=
        std::string_view::npos);
}

TEST_CASE("swap first: as many swapped blocks as there are, whatever the interval") {
  auto const rules = policies<>{}.with(activation::swap_first{});
  auto const p = plan::make(job(), hw::host_demo(), roomy, rules, wanted("swap=999,interval=4"));
  REQUIRE(p.has_value());
  CHECK(p->at.swap == 8);
  auto const q =
      plan::make(job(), hw::host_demo(), roomy, policies<>{}, wanted("swap=999,interval=4"));
  REQUIRE(q.has_value());
  CHECK(q->at.swap == 2);
}

TEST_CASE("a search that meets its limit says so and still answers") {
  plan::limits const few{.programs = 1, .refinements = 5, .candidates = 50};
  plan::budget const tight{.gpu = 12_MiB, .host = 8_GiB};
  auto const p = plan::search(job(), hw::host_demo(), tight, policies<>{}, few);
  REQUIRE(p.has_value());
  CHECK(!p->search.proven);
  CHECK(p->search.candidates <= 2 * 50);  // without streamed updates, then with them
  CHECK(p->search.bound <= p->predicted.iteration);
  auto const best = plan::search(job(), hw::host_demo(), tight);
  REQUIRE(best.has_value());
  CHECK(best->predicted.iteration <= p->predicted.iteration);
}

TEST_CASE("an explanation names bounds, others and what memory buys") {
  plan::budget const tight{.gpu = 12_MiB, .host = 8_GiB};
  auto const p = plan::search(job(), hw::host_demo(), tight);
  REQUIRE(p.has_value());
  plan::explanation const e = plan::explain(*p, hw::host_demo(), tight);
  CHECK(e.gpu.more == 3_MiB);
  CHECK(e.gpu.iteration + e.gpu.saved == p->predicted.iteration);
  CHECK(e.why.view().find("forward") != std::string_view::npos);
  CHECK(e.why.view().find("bound by") != std::string_view::npos);
  CHECK(e.why.view().find("3MiB more of GPU memory saves") != std::string_view::npos);
  plan::explanation const room =
      plan::explain(*plan::search(job(), hw::host_demo(), roomy), hw::host_demo(), roomy);
  CHECK(room.gpu.saved == picoseconds{});
  CHECK(room.why.view().find("saves nothing") != std::string_view::npos);
}

TEST_CASE("times for people") {
  auto const shown = [](picoseconds t) {
    text out;
    plan::append_time(out, t);
    return out;
  };
  CHECK(shown({0}) == text("0.000 ns"));
  CHECK(shown({1'234'567}) == text("1.234 us"));
  CHECK(shown(12_ms) == text("12.000 ms"));
  CHECK(shown({1'050'000'000'000}) == text("1.050 s"));
}

}  // namespace search_test
