// SPDX-License-Identifier: Apache-2.0
// Plan strings: what they fix, and every way to be refused.

#include "protrain/plan/parse.hpp"

#include "protrain/core/text.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace parse_test {

using namespace protrain;

TEST_CASE("names") {
  CHECK(plan::parse("auto").value() == plan::request{});
  CHECK(plan::parse("keep_all").value() == plan::keep_all());
  CHECK(plan::parse("offload_all")->buffer == 3U);
  CHECK(plan::parse("checkpoint_all")->checkpoint == 999U);
}

TEST_CASE("keys fix values, and what is missing stays open") {
  auto const r = plan::parse(
      "persist=3,buffer=2,swap=1,checkpoint=4,interval=5,chunk=1MiB,update=cpu,defer=0,"
      "levels=0:0:0,slots=3:0,time=during_backward");
  REQUIRE(r.has_value());
  CHECK(r->persist == 3U);
  CHECK(r->buffer == 2U);
  CHECK(r->swap == 1U);
  CHECK(r->checkpoint == 4U);
  CHECK(r->interval == 5U);
  CHECK(r->chunk == 1'048'576U);
  CHECK(r->gradient_slots == 3U);
  CHECK(r->streamed == 0U);
  CHECK(r->streaming_slots == 0U);
  CHECK(r->time == update::timing::during_backward);
  auto const one = plan::parse("swap=7");
  REQUIRE(one.has_value());
  CHECK(one->swap == 7U);
  CHECK(!one->persist);
  CHECK(!one->time);
}

TEST_CASE("update sites") {
  CHECK(plan::parse("update=cpu")->streamed == 0U);
  CHECK(plan::parse("update=streamed")->streamed == plan::all_chunks);
  CHECK(plan::parse("update=split:7")->streamed == 7U);
  CHECK(!plan::parse("slots=2:3")->streamed);
  CHECK(plan::parse("slots=2:3")->streaming_slots == 3U);
  plan::numbers n{.chunk = 4096, .moving = 5, .streamed = 2, .streaming_slots = 3};
  auto const says = [&](std::string_view part) {
    return plan::print(n).view().find(part) != std::string_view::npos;
  };
  CHECK(says("update=split:2,defer=0,slots=2:3,"));
  n.streamed = 5;
  CHECK(says("update=streamed,defer=0,slots=2:3,"));
  n.streamed = 0;
  n.streaming_slots = 0;
  CHECK(says("update=cpu,defer=0,slots=2:0,"));
}

TEST_CASE("sets of persistent chunks") {
  CHECK(plan::parse("persist=0:2:5")->persist_set == std::vector<std::uint32_t>{0, 2, 5});
  CHECK(plan::parse("persist=4:")->persist_set == std::vector<std::uint32_t>{4});
  CHECK(plan::parse("persist=4:")->listed);
  CHECK(!plan::parse("persist=4")->listed);
}

TEST_CASE("levels: a count each, and what isn't named has no blocks") {
  CHECK(!plan::parse("swap=0")->levels);
  CHECK(plan::parse("levels=0")->levels == plan::level_counts{});
  CHECK(plan::parse("levels=3:0:1")->levels == plan::level_counts{3, 0, 1, 0});
  CHECK(plan::parse("levels=1:2:3:4")->levels == plan::level_counts{1, 2, 3, 4});
  CHECK(plan::parse("keep_all")->levels == plan::level_counts{});
  plan::numbers n{.levels = {4, 2}, .depth = 2};
  CHECK(plan::print(n).view().find(",levels=4:2,") != std::string_view::npos);
  CHECK(plan::parse(plan::print(n).view())->levels == plan::level_counts{4, 2});
  n.depth = 0;
  CHECK(plan::print(n).view().find("levels") == std::string_view::npos);
}

TEST_CASE("a number of any length saturates") {
  CHECK(plan::parse("persist=99999999999999999999999999")->persist ==
        std::numeric_limits<std::uint64_t>::max());
}

TEST_CASE("every kind of broken value is named with key, value and reason") {
  struct row {
    std::string_view in;
    std::string_view key;
    std::string_view value;
    std::string_view reason;
  };
  for (row const& r : {row{"", "", "", "not a plan"},
                       row{"fast", "fast", "", "not a plan"},
                       row{"keep_all,swap=1", "keep_all", "", "not a plan"},
                       row{"persist", "persist", "", "not a plan"},
                       row{"swap=1,", "", "", "not a plan"},
                       row{"pursist=1", "pursist", "1", "unknown key"},
                       row{"=1", "", "1", "unknown key"},
                       row{"persist=-1", "persist", "-1", "negative"},
                       row{"buffer=-2", "buffer", "-2", "negative"},
                       row{"swap=", "swap", "", "missing"},
                       row{"swap=x", "swap", "x", "not a number"},
                       row{"swap=1x", "swap", "1x", "not a number"},
                       row{"swap=1.5", "swap", "1.5", "not a number"},
                       row{"swap=1=2", "swap", "1=2", "not a number"},
                       row{"swap= 1", "swap", " 1", "not a number"},
                       row{"checkpoint=+1", "checkpoint", "+1", "not a number"},
                       row{"interval=two", "interval", "two", "not a number"},
                       row{"swap=1,swap=2", "swap", "2", "twice"},
                       row{"persist=1:1", "persist", "1:1", "ascend"},
                       row{"persist=2:1", "persist", "2:1", "ascend"},
                       row{"persist=1::2", "persist", "1::2", "missing"},
                       row{"persist=:1", "persist", ":1", "missing"},
                       row{"persist=1:-2", "persist", "1:-2", "negative"},
                       row{"persist=1:99999999999", "persist", "1:99999999999", "no chunk"},
                       row{"chunk=per_block", "chunk", "per_block", "not in this version"},
                       row{"chunk=-1MiB", "chunk", "-1MiB", "negative"},
                       row{"chunk=big", "chunk", "big", "not a size"},
                       row{"update=gpu", "update", "gpu", "not an update site"},
                       row{"update=split", "update", "split", "split:N"},
                       row{"update=split:", "update", "split:", "a number is missing"},
                       row{"update=split:-1", "update", "split:-1", "negative"},
                       row{"update=split:x", "update", "split:x", "not a number"},
                       row{"defer=1,time=after_backward", "defer", "after_backward", "time="},
                       row{"defer=-1", "defer", "-1", "negative"},
                       row{"levels=-1", "levels", "-1", "negative"},
                       row{"levels=1:2:3:4:5", "levels", "1:2:3:4:5", "at most four"},
                       row{"levels=0:", "levels", "0:", "missing"},
                       row{"levels=a", "levels", "a", "not a number"},
                       row{"slots=2", "slots", "2", "slots=2:2"},
                       row{"slots=2:x", "slots", "2:x", "not a number"},
                       row{"slots=x:0", "slots", "x:0", "not a number"},
                       row{"unroll=-1", "unroll", "-1", "negative"},
                       row{"unroll=all", "unroll", "all", "not a number"},
                       row{"time=later", "time", "later", "not an update time"}}) {
    CAPTURE(r.in.data());
    auto const got = plan::parse(r.in);
    REQUIRE(!got.has_value());
    CHECK(got.failure().key.view() == r.key);
    CHECK(got.failure().value.view() == r.value);
    CHECK(std::string_view(got.failure().reason).find(r.reason) != std::string_view::npos);
  }
}

TEST_CASE("an update time that the job does not allow is refused") {
  model::job clips{.clip = 1.0F};
  CHECK(plan::parse("time=during_backward", model::job{}).has_value());
  CHECK(plan::parse("time=after_backward", clips).has_value());
  auto const got = plan::parse("time=during_backward", clips);
  REQUIRE(!got.has_value());
  CHECK(got.failure().key.view() == "time");
  CHECK(std::string_view(got.failure().reason).find("norm") != std::string_view::npos);
}

TEST_CASE("printed numbers read back") {
  plan::numbers n{.persist = 4,
                  .buffer = 3,
                  .swap = 2,
                  .checkpoint = 1,
                  .interval = 6,
                  .chunk = 3'145'728,
                  .gradient_slots = 4,
                  .time = update::timing::during_backward};
  auto const r = plan::parse(plan::print(n).view());
  REQUIRE(r.has_value());
  CHECK(r->persist == 4U);
  CHECK(r->buffer == 3U);
  CHECK(r->swap == 2U);
  CHECK(r->checkpoint == 1U);
  CHECK(r->interval == 6U);
  CHECK(r->chunk == 3'145'728U);
  CHECK(r->gradient_slots == 4U);
  CHECK(r->time == update::timing::during_backward);
  for (std::vector<std::uint32_t> const& set :
       {std::vector<std::uint32_t>{7}, std::vector<std::uint32_t>{1, 2, 9}}) {
    n.listed = true;
    n.persist_set = set;
    CHECK(plan::parse(plan::print(n).view())->persist_set == set);
  }
}

}  // namespace parse_test
