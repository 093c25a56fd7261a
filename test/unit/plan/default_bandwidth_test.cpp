// SPDX-License-Identifier: Apache-2.0
// The default bandwidth policy, as plans and reports see it.

#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/sim/whole_step.hpp"
#include "protrain/trace/analytic.hpp"

#include <doctest/doctest.h>

#include <concepts>

namespace default_bandwidth_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

static_assert(std::same_as<decltype(policies<>{}.bandwidth), link::shared>);

trace::trace small_decoder(hw::machine const& m) {
  model::decoder_config const c{
      .layers = 6, .hidden = 512, .heads = 8, .inner = 1408, .vocabulary = 4000, .positions = 512};
  model::job const job{.micro_batch = 2,
                       .sequence = 512,
                       .accumulate = 2,
                       .type = dtype::bf16,
                       .state = model::state_format::split_master};
  return trace::analytic(c, job, m);
}

constexpr plan::budget roomy{.gpu = 8_GiB, .host = 8_GiB};

template <class Bundle>
plan::plan offloaded(hw::machine const& m, Bundle const& rules) {
  auto const found = plan::make(small_decoder(m), m, roomy, rules, plan::offload_all());
  REQUIRE(found.has_value());
  return *found;
}

}  // namespace

TEST_CASE("the default predicts contention, and nothing else where none is known") {
  hw::machine m = hw::h200x1();
  auto const alone = policies<>{}.with(link::fixed{});
  plan::plan const shared = offloaded(m, policies<>{});
  CHECK(shared.predicted.iteration > offloaded(m, alone).predicted.iteration);
  CHECK(shared.predicted.bound <= shared.predicted.iteration);
  m.concurrent = {};
  CHECK(offloaded(m, policies<>{}).predicted.iteration == offloaded(m, alone).predicted.iteration);
}

TEST_CASE("what a plan predicts is what its programs take at the machine's pace") {
  hw::machine const m = hw::h200x1();
  plan::plan const p = offloaded(m, policies<>{});
  sim::pace const pace(m, policies<>{}.bandwidth, p.trace.job.world);
  REQUIRE(pace.contended());
  auto const programs =
      schedule::compile_step(p.trace, p.layout, p.knobs, policies<>{}.eviction, p.at.defer > 0);
  REQUIRE(programs.has_value());
  sim::whole_step step;
  for (schedule::program const& each : *programs) {
    step.add(sim::simulate(each, sim::durations_of(each, p.trace, pace), pace), each.times);
  }
  CHECK(step.iteration == p.predicted.iteration);
  CHECK(step.busy == p.predicted.busy);
}

}  // namespace default_bandwidth_test
