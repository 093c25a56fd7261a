// SPDX-License-Identifier: Apache-2.0
// Fixed ways to train beside the search's: each is its request's plan, and none is faster than ours.

#include "protrain/plan/compare.hpp"

#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/analytic.hpp"
#include "protrain/update/timing.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace compare_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

trace::trace facts(float clip) {
  return trace::analytic(
      {.layers = 8, .hidden = 512, .heads = 8, .inner = 1408, .vocabulary = 4000},
      {.micro_batch = 4,
       .sequence = 512,
       .type = dtype::bf16,
       .state = model::state_format::split_master,
       .clip = clip},
      hw::h200x1());
}

std::vector<std::string> names(std::vector<plan::contender> const& all) {
  std::vector<std::string> out;
  for (plan::contender const& c : all) {
    out.emplace_back(c.name);
  }
  return out;
}

}  // namespace

TEST_CASE("five ways; ours is as fast as any that fits, in every budget and with clipping or not") {
  for (float const clip : {0.0F, 1.0F}) {
    for (bytes const gpu : {64_MiB, 192_MiB, 512_MiB, 4_GiB}) {
      CAPTURE(clip);
      CAPTURE(gpu.value);
      auto const all = plan::compare(facts(clip), hw::h200x1(), {.gpu = gpu, .host = 4_GiB});
      CHECK(names(all) ==
            std::vector<std::string>{
                "all offloaded", "all checkpointed", "all kept", "paper's knobs", "ours"});
      plan::contender const& ours = all.back();
      for (plan::contender const& c : all) {
        CAPTURE(c.name);
        if (c.answer) {
          REQUIRE(ours.answer.has_value());
          CHECK(ours.answer->predicted.iteration <= c.answer->predicted.iteration);
          CHECK(c.answer->predicted.device.peak <= gpu.value);
        } else {
          CHECK(c.answer.failure().lacks_memory());
        }
      }
    }
  }
}

TEST_CASE("each is what its request makes") {
  auto const all = plan::compare(facts(0), hw::h200x1(), {.gpu = 4_GiB, .host = 4_GiB});
  auto const made = [](char const* string) {
    return plan::make(facts(0),
                      hw::h200x1(),
                      {.gpu = 4_GiB, .host = 4_GiB},
                      plan::policies<>{},
                      *plan::parse(string, facts(0).job));
  };
  CHECK(*all[0].answer == *made("offload_all"));
  CHECK(*all[1].answer == *made("checkpoint_all"));
  CHECK(*all[2].answer == *made("keep_all"));
  CHECK(*all[4].answer == *made("auto"));
}

TEST_CASE("the paper updates on the CPU within the step, after the norm where there is one") {
  auto const paper = [](float clip) {
    auto const all = plan::compare(facts(clip), hw::h200x1(), {.gpu = 192_MiB, .host = 4_GiB});
    REQUIRE(all[3].answer.has_value());
    return all[3].answer->at;
  };
  CHECK(paper(0).time == update::timing::during_backward);
  CHECK(paper(1).time == update::timing::after_backward);
  for (float const clip : {0.0F, 1.0F}) {
    CHECK(paper(clip).streamed == 0);
    CHECK(paper(clip).defer == 0);
  }
}

TEST_CASE("what doesn't fit says so, each for itself") {
  auto const all = plan::compare(facts(0), hw::h200x1(), {.gpu = 128_MiB, .host = 4_GiB});
  CHECK_FALSE(all[2].answer.has_value());
  CHECK(all[2].answer.failure().short_device > 0);
  CHECK(all[4].answer.has_value());
}

}  // namespace compare_test
