// SPDX-License-Identifier: Apache-2.0
// Plans as JSON: promised members, files that read back, and other jobs' files refused.

#include "protrain/io/plan.hpp"

#include "protrain/hw/presets.hpp"
#include "protrain/io/run_facts.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/search.hpp"
#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plan_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using io::json;
using protrain_test::contains;
using protrain_test::refused;

namespace {

trace::trace example() {
  trace::trace t{.from = trace::source::analytic, .job = {.micro_batch = 2, .sequence = 32}};
  t.shapes = {
      {.name = "embedding",
       .forward = 1_us,
       .backward = 2_us,
       .output = {65536},
       .reads_input = false},
      {.name = "block",
       .forward = 30_us,
       .backward = 60_us,
       .input = {65536},
       .output = {65536},
       .saved = 1_MiB,
       .scratch_forward = 64_KiB,
       .scratch_backward = 128_KiB},
      {.name = "head", .forward = 1_us, .backward = 2_us, .input = {65536}, .saved = 4_KiB}};
  t.blocks = {{0}, {1}, {1}, {2}};
  t.parameters = {{.name = "wte", .shape = {256, 64}, .uses = {{0}, {3}}},
                  {.name = "h.0", .shape = {64, 768}, .uses = {{1}}},
                  {.name = "h.1", .shape = {64, 768}, .uses = {{2}}}};
  t.batch = {512};
  return t;
}

io::plan_subject subject(trace::trace const& t) { return {"gpt2", "host-demo", t}; }

plan::plan found(std::uint64_t gpu = 1ULL << 30U) {
  auto const p = plan::search(example(), hw::host_demo(), {.gpu = {gpu}, .host = 1_GiB});
  REQUIRE(p.has_value());
  return *p;
}

json answer() {
  trace::trace const t = example();
  return io::to_json(subject(t), found(), {});
}

io::plan_file parse(json const& object) {
  std::string const text = object.dump();
  io::json_document const file("p.json", text);
  return io::parse_plan(file.top());
}

}  // namespace

TEST_CASE("the members of a feasible answer, and sums that are exact") {
  json const a = answer();
  CHECK(a["protrain"] == "plan");
  CHECK(a["version"] == 1);
  CHECK(a["feasible"] == true);
  CHECK(a["model"]["type"] == "gpt2");
  CHECK(a["model"]["parameters"] == 256 * 64 + 2 * 64 * 768);
  CHECK(a["model"]["blocks"] == 4);
  CHECK(a["machine"] == "host-demo");
  CHECK(a["trace"] == "analytic");
  CHECK(a["job"]["micro_batch"] == 2);
  for (char const* const name : {"string",
                                 "chunk_bytes",
                                 "chunks",
                                 "n_persist",
                                 "n_buffer",
                                 "n_swap",
                                 "n_checkpoint",
                                 "swap_interval",
                                 "sizing",
                                 "levels",
                                 "update",
                                 "unroll",
                                 "slots"}) {
    CHECK(a["plan"].contains(name));
  }
  for (char const* const name : {"site", "streamed", "time", "defer"}) {
    CHECK(a["plan"]["update"].contains(name));
  }
  plan::plan p = found();
  p.at.moving = 3;
  for (std::uint32_t streamed = 0; streamed <= 3; ++streamed) {
    p.at.streamed = streamed;
    p.at.streaming_slots = 2 * streamed;
    json const split = io::to_json(subject(p.trace), p, {})["plan"];
    CHECK(split["update"]["site"] == (streamed == 0 ? "cpu" : streamed < 3 ? "split" : "streamed"));
    CHECK(split["update"]["streamed"] == streamed);
    CHECK(split["slots"]["streaming"] == 2 * streamed);
  }
  for (char const* const name : {"seconds_per_iteration",
                                 "tokens_per_second",
                                 "forward_seconds",
                                 "backward_seconds",
                                 "update_seconds",
                                 "exposed_seconds",
                                 "gpu_peak_bytes",
                                 "host_bytes"}) {
    CHECK(a["predicted"].contains(name));
  }
  for (char const* const where : {"gpu", "host"}) {
    std::uint64_t sum = 0;
    for (auto const& each : a["memory"][where].items()) {
      sum += each.value().get<std::uint64_t>();
    }
    CHECK(sum == a["predicted"][where == std::string("gpu") ? "gpu_peak_bytes" : "host_bytes"]);
  }
  CHECK(a["bound_by"].is_string());
  CHECK(a["alternatives"].is_array());
  CHECK(a["sensitivity"].is_object());
}

TEST_CASE(
    "what bounds each phase, each category's maximum, memory by time, and what more would buy") {
  plan::plan const p = found();
  plan::explanation e{.gpu = {.more = 5_MiB, .iteration = 3_ms, .saved = 1_ms},
                      .bandwidth = {.iteration = 2_ms, .saved = 2_ms},
                      .rank = {.world = 3, .tokens = 30, .fits = true, .iteration = 15_ms}};
  plan::memory_over_time const filled{.length = 4_ms, .device = {1, 2}, .host = {3, 4}};
  json const a = io::to_json(subject(p.trace), p, e, {}, filled);
  CHECK(a["predicted"]["phases_bound_by"]["forward"] == name_of(p.predicted.phase_bound_by[0]));
  CHECK(a["predicted"]["phases_bound_by"].size() == 3);
  for (auto const& [name, report] : {std::pair("gpu_maximum", &p.predicted.device),
                                     std::pair("host_maximum", &p.predicted.host)}) {
    for (std::size_t c = 0; c < category_count; ++c) {
      std::string const what(name_of(static_cast<category>(c)));
      CHECK(a["memory"][name].value(what, std::uint64_t{0}) == report->maximum[c]);
    }
  }
  CHECK(a["memory_over_time"]["seconds"] == 0.004);
  CHECK(a["memory_over_time"]["gpu_bytes"] == json{1, 2});
  CHECK(a["memory_over_time"]["host_bytes"] == json{3, 4});
  CHECK(a["sensitivity"]["more_gpu_bytes"] == 5 << 20);
  CHECK(a["sensitivity"]["seconds_saved"] == 0.001);
  CHECK(a["sensitivity"]["bandwidth"]["percent"] == 10);
  CHECK(a["sensitivity"]["bandwidth"]["seconds_saved"] == 0.002);
  CHECK(a["sensitivity"]["rank"]["world"] == 3);
  CHECK(a["sensitivity"]["rank"]["tokens_per_second"].get<double>() == doctest::Approx(2000));
  e.rank = {.world = 3, .lacks = {.code = errc::no_host_memory, .short_host = 9}};
  json const lacks = io::to_json(subject(p.trace), p, e)["sensitivity"]["rank"];
  CHECK(lacks["feasible"] == false);
  CHECK(lacks["host_short_bytes"] == 9);
  CHECK(lacks["gpu_short_bytes"] == 0);
  e.rank = {};
  CHECK(io::to_json(subject(p.trace), p, e)["sensitivity"]["rank"].is_null());
}

TEST_CASE("counts of save levels, where the bundle places them") {
  CHECK(answer()["plan"]["levels"] == json::array());
  trace::trace t = example();
  t.shapes[1].levels = {{.name = "cheap", .saved = 512_KiB, .rebuilt = 512_KiB, .rebuild = 5_us},
                        {.name = "deep", .rebuilt = 1_MiB, .rebuild = 25_us}};
  auto const rules = policies<>{}.with(activation::levels{});
  auto const wanted = plan::parse("levels=1:1,swap=0,checkpoint=0");
  REQUIRE(wanted.has_value());
  auto const p = plan::make(t, hw::host_demo(), {.gpu = 1_GiB, .host = 1_GiB}, rules, *wanted);
  REQUIRE(p.has_value());
  json const a = io::to_json(subject(t), *p, {});
  CHECK(a["plan"]["levels"] == json::array({1, 1}));
  CHECK(parse(a).string == p->string().view());
}

TEST_CASE("the members of an infeasible answer") {
  trace::trace const t = example();
  auto const p = plan::search(t, hw::host_demo(), {.gpu = 1_MiB, .host = 1_GiB});
  REQUIRE_FALSE(p.has_value());
  json const a = io::to_json(subject(t), p.failure());
  CHECK(a["feasible"] == false);
  CHECK(a["short"]["where"] == "gpu");
  std::uint64_t const lacks = a["short"]["bytes"];
  CHECK(a["nearest"]["gpu_bytes"] == lacks + 1_MiB .value);
  CHECK(a["job"] == answer()["job"]);
  auto const again =
      plan::search(t, hw::host_demo(), {.gpu = {lacks + 1_MiB .value}, .host = 1_GiB});
  CHECK(again.has_value());
  CHECK(refused([&] { parse(a); }).field() == "feasible");
}

TEST_CASE("sizes of the micro-batch in the order of looking, what doesn't fit without numbers") {
  json const a = io::to_json(std::vector<plan::micro_batch_seen>{{.micro_batch = 2,
                                                                  .fits = true,
                                                                  .tokens = 100,
                                                                  .iteration = 50_ms,
                                                                  .device_peak = 7,
                                                                  .proven = true},
                                                                 {.micro_batch = 4}});
  REQUIRE(a.size() == 2);
  CHECK(a[0]["seconds_per_iteration"] == doctest::Approx(0.05));
  CHECK(a[0]["tokens_per_second"] == doctest::Approx(2000));
  CHECK(a[0]["gpu_peak_bytes"] == 7);
  CHECK(a[0]["proven"] == true);
  CHECK(a[1] == json{{"micro_batch", 4}, {"feasible", false}});
}

TEST_CASE("a file gives the plan back, for its job") {
  trace::trace const t = example();
  io::plan_file const f = parse(answer());
  CHECK(f.string == found().string().view());
  io::check_subject(f, "p.json", subject(t));
  auto const wanted = plan::parse(f.string, t.job);
  REQUIRE(wanted.has_value());
  auto const again =
      plan::make(t, hw::host_demo(), {.gpu = 1_GiB, .host = 1_GiB}, plan::policies<>{}, *wanted);
  REQUIRE(again.has_value());
  CHECK(again->knobs == found().knobs);
  CHECK(again->layout == found().layout);
}

TEST_CASE("another job's file is refused, and the first difference is named") {
  io::plan_file const f = parse(answer());
  auto const difference = [&](auto change) {
    trace::trace t = example();
    change(t);
    auto const e = refused([&] { io::check_subject(f, "p.json", subject(t)); });
    CHECK(protrain_test::one_line(e.what()));
    CHECK(e.file() == "p.json");
    return e.field();
  };
  CHECK(difference([](trace::trace& t) { t.job.micro_batch = 3; }) == "job.micro_batch");
  CHECK(difference([](trace::trace& t) { t.job.sequence = 3; }) == "job.sequence");
  CHECK(difference([](trace::trace& t) { t.job.clip = 0.1F; }) == "job.clip");
  CHECK(difference([](trace::trace& t) { t.job.seed = 2; }) == "job.seed");
  CHECK(difference([](trace::trace& t) { t.job.type = dtype::bf16; }) == "job.dtype");
  CHECK(difference([](trace::trace& t) { t.parameters[0].shape[0] = 257; }) == "model.parameters");
  CHECK(difference([](trace::trace& t) { t.blocks.push_back({2}); }) == "model.blocks");
  CHECK(difference([](trace::trace& t) { t.shapes[1].saved = 2_MiB; }) == "fingerprint");
  trace::trace faster = example();
  faster.shapes[1].forward = 1_us;  // times are no part of a job
  io::check_subject(f, "p.json", subject(faster));
}

TEST_CASE("broken plan files") {
  auto const broken = [&](auto change) {
    json a = answer();
    change(a);
    return refused([&] { parse(a); }).field();
  };
  CHECK(broken([](json& a) { a["plan"]["string"] = "persist=x"; }) == "plan.string");
  CHECK(broken([](json& a) { a["plan"].erase("string"); }) == "plan.string");
  CHECK(broken([](json& a) { a["fingerprint"] = 12; }) == "fingerprint");
  CHECK(broken([](json& a) { a["fingerprint"] = "123"; }) == "fingerprint");
  CHECK(broken([](json& a) { a["job"]["world"] = -1; }) == "job.world");
  CHECK(broken([](json& a) { a["protrain"] = "trace"; }) == "protrain");
  CHECK(broken([](json& a) { a["model"]["blocks"] = 1.5; }) == "model.blocks");
}

TEST_CASE("run facts hold what a run needs to be repeated") {
  protrain_test::scratch_folder const folder;
  io::write_run_facts(folder / "r.json",
                      {.model = "m", .device = "host", .text = "bad \xff bytes", .steps = 3});
  io::json_document const file(folder / "r.json", io::read_file(folder / "r.json"));
  CHECK(file.top().at("plan").is_null());
  CHECK(file.top().at("steps").integer(0, 9) == 3);
  CHECK(file.top().at("library_version").string() == io::library_version());
  CHECK(contains(file.top().at("compiler").string(), "."));
  CHECK(io::to_json({.plan = "persist=1"})["plan"] == "persist=1");
}

}  // namespace plan_test
