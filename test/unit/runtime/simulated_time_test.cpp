// SPDX-License-Identifier: Apache-2.0
// A step is never faster than its simulation where passes and copies take as long as trace and
// machine say: what is simulated is what runs. How much slower it is depends on the machine
// (bench/sim).

#include "bench/sim/waiting_model.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace simulated_time_test {

namespace {

using namespace protrain;

/// A chunk takes 1.4 ms up and 1.7 ms down; what the library computes is free.
hw::machine slow_machine() {
  constexpr std::uint64_t at_once = std::numeric_limits<std::uint64_t>::max();
  return {.device_memory = 1_GiB,
          .host_memory = 1_GiB,
          .host_to_device = {2'000'000},
          .device_to_host = {1'600'000},
          .copy_latency = 400_us,
          .device_bandwidth = {at_once},
          .host_bandwidth = {at_once}};
}

constexpr bench::waiting_config sizes{.layers = 3,
                                      .parameters = 512,
                                      .boundary = 64,
                                      .saved = 512,
                                      .ends = {.forward = 500_us, .backward = 1_ms},
                                      .layer = {.forward = 1_ms, .backward = 2_ms}};

void run(std::string const& wanted, std::uint64_t accumulate) {
  CAPTURE(wanted);
  CAPTURE(accumulate);
  hw::machine const machine = slow_machine();
  device::host_device device({.h2d = {machine.host_to_device, machine.copy_latency},
                              .d2h = {machine.device_to_host, machine.copy_latency}});
  auto const model = bench::waiting_model(device, sizes);
  model::job const job{.sequence = 1, .accumulate = accumulate};
  trace::trace const facts = bench::waiting_trace(model, job, sizes);
  auto const request = plan::parse(wanted, job);
  REQUIRE(request.has_value());
  auto const plan =
      plan::make(facts, machine, plan::budget_of(machine), plan::policies<>{}, *request);
  REQUIRE(plan.has_value());
  comm::self comm;
  runtime::engine engine(device, comm, model, *plan);
  std::vector<std::uint8_t> const tokens(bench::waiting_batch_bytes * accumulate, 0);
  runtime::batch data;
  data.add("tokens", tokens.data(), tokens.size()).targets(1);
  picoseconds const repeated = bench::simulated(bench::step_of(*plan, true), facts, machine);
  CHECK(repeated == plan->predicted.iteration);
  for (int n = 0; n < 2; ++n) {
    picoseconds const least = bench::simulated(bench::step_of(*plan, n > 0), facts, machine);
    CHECK(engine.step(data, {}).get().seconds >= least.seconds());
  }
}

TEST_CASE("a step is never faster than its simulation") {
  run("keep_all", 1);
  run("offload_all", 1);
  run("persist=2,buffer=1,swap=0,checkpoint=9,chunk=2KiB,defer=0", 1);
  run("persist=0,buffer=2,swap=2,checkpoint=2,interval=1,chunk=2KiB,defer=3", 1);
  run("persist=1,buffer=1,swap=1,checkpoint=1,interval=2,chunk=2KiB,time=during_backward", 2);
  run("persist=0,buffer=1,swap=9,checkpoint=0,interval=1,chunk=2KiB,defer=2,unroll=1", 3);
  run("persist=1,buffer=1,swap=1,checkpoint=1,interval=1,chunk=2KiB,defer=0,update=streamed", 1);
  run("persist=0,buffer=2,swap=0,checkpoint=0,chunk=2KiB,update=streamed,time=during_backward", 2);
}

}  // namespace

}  // namespace simulated_time_test
