// SPDX-License-Identifier: Apache-2.0
// The timeline as ui.perfetto.dev reads it, against the plan and the simulation that it shows.

#include "protrain/report/perfetto.hpp"

#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/json.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/analytic.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace perfetto_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using namespace protrain::literals;
using io::json;

plan::plan planned(std::string const& wanted, std::uint64_t accumulate, float clip) {
  model::decoder_config const c{
      .layers = 6, .hidden = 512, .heads = 8, .inner = 1408, .vocabulary = 4000, .positions = 512};
  model::job const job{.micro_batch = 2,
                       .sequence = 512,
                       .accumulate = accumulate,
                       .type = dtype::bf16,
                       .state = model::state_format::split_master,
                       .clip = clip};
  auto const facts = trace::analytic(c, job, hw::h200x1());
  auto const request = plan::parse(wanted, job);
  REQUIRE(request.has_value());
  auto const found =
      plan::make(facts, hw::h200x1(), {.gpu = 8_GiB, .host = 8_GiB}, plan::policies<>{}, *request);
  REQUIRE(found.has_value());
  return *found;
}

json events_of(plan::plan const& p) {
  auto const text = report::perfetto(p, hw::h200x1());
  REQUIRE(text.has_value());
  return json::parse(*text)["traceEvents"];
}

constexpr auto split =
    "persist=2,buffer=2,swap=2,checkpoint=3,interval=2,chunk=7MiB,update=cpu,defer=2";
constexpr double picosecond = 1e-6;  // in the file's microseconds

/// Slices by track, in order of time.
std::map<std::uint64_t, std::vector<json>> tracks(json const& events) {
  std::map<std::uint64_t, std::vector<json>> out;
  for (json const& e : events) {
    if (e["ph"] == "X") {
      out[e["tid"]].push_back(e);
    }
  }
  for (auto& [track, slices] : out) {
    std::ranges::sort(slices, {}, [](json const& e) { return e["ts"].get<double>(); });
  }
  return out;
}

void check_memory(plan::plan const& p) {
  json const events = events_of(p);
  for (auto const& [name, predicted] : {std::pair("device memory", &p.predicted.device),
                                        std::pair("host memory", &p.predicted.host)}) {
    CAPTURE(name);
    std::int64_t most = 0;
    std::map<std::string, std::int64_t> highest;
    json first;
    json held;
    double before = 0;
    for (json const& e : events) {
      if (e["ph"] != "C" || e["name"] != name) {
        continue;
      }
      CHECK(e["ts"].get<double>() >= before);
      before = e["ts"];
      held = e["args"];
      first = first.is_null() ? held : first;
      std::int64_t sum = 0;
      for (auto const& member : held.items()) {
        auto const bytes = member.value().get<std::int64_t>();
        CHECK(bytes >= 0);
        sum += bytes;
        highest[member.key()] = std::max(highest[member.key()], bytes);
      }
      most = std::max(most, sum);
    }
    CHECK(most <= static_cast<std::int64_t>(predicted->peak));
    CHECK(most > static_cast<std::int64_t>(predicted->peak) / 2);
    std::int64_t carried = 0;
    for (auto const& member : held.items()) {
      carried += member.value().get<std::int64_t>();
      CHECK(member.value() <= first[member.key()]);
    }
    CHECK(carried > 0);
  }
}

}  // namespace

TEST_CASE(
    "a track for each queue, as busy as predicted, one slice at a time, as long as the step") {
  std::string const cut = std::string(split) + ",unroll=1";  // programs that follow each other
  for (std::string const& wanted :
       std::vector<std::string>{split, "keep_all", "offload_all", cut}) {
    for (std::uint64_t const accumulate : {1U, 3U}) {
      CAPTURE(wanted);
      CAPTURE(accumulate);
      plan::plan const p = planned(wanted, accumulate, 0);
      auto const by_track = tracks(events_of(p));
      double last = 0;
      for (std::size_t q = 0; q < queue_count; ++q) {
        double busy = 0;
        double free = 0;
        auto const found = by_track.find(q + 1);
        for (json const& e : found == by_track.end() ? std::vector<json>{} : found->second) {
          CHECK(e["ts"].get<double>() >= free - picosecond);
          free = e["ts"].get<double>() + e["dur"].get<double>();
          busy += e["dur"].get<double>();
        }
        last = std::max(last, free);
        CHECK(busy == doctest::Approx(static_cast<double>(p.predicted.busy[q].value) * picosecond));
      }
      CHECK(last == doctest::Approx(static_cast<double>(p.predicted.iteration.value) * picosecond));
    }
  }
}

TEST_CASE("slices say what they are: blocks by name, copies with their bytes") {
  json const events = events_of(planned(split, 1, 0));
  auto const named = [&](std::string const& name) {
    return std::ranges::any_of(events, [&](json const& e) { return e["name"] == name; });
  };
  CHECK(named("forward of block 3 (layer), micro-batch 0"));
  CHECK(named("backward of block 7 (head), micro-batch 0"));
  CHECK(named("thread_name"));
  bool copies = false;
  for (json const& e : events) {
    copies = copies || (e["ph"] == "X" && e["cat"] == "upload" && e["args"]["amount"] > 0);
  }
  CHECK(copies);
}

TEST_CASE("memory over time: never below zero, never above the peak, and back to what is carried") {
  for (char const* const wanted : {split,
                                   "keep_all",
                                   "offload_all",
                                   "checkpoint_all",
                                   "persist=3,buffer=2,swap=4,chunk=7MiB"}) {
    for (std::uint64_t const accumulate : {1U, 4U}) {
      CAPTURE(wanted);
      CAPTURE(accumulate);
      check_memory(planned(wanted, accumulate, 1));
    }
  }
}

TEST_CASE("a name that isn't UTF-8 is replaced, and the file stays JSON") {
  plan::plan p = planned("keep_all", 1, 0);
  p.trace.shapes[1].name = "lay\xFF\"er";
  json const events = events_of(p);
  CHECK(std::ranges::any_of(events, [](json const& e) {
    return e["name"].get<std::string>().find("lay\xEF\xBF\xBD\"er") != std::string::npos;
  }));
}

}  // namespace perfetto_test
