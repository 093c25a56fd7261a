// SPDX-License-Identifier: Apache-2.0
// A plan in words.

#include "protrain/report/plan_summary.hpp"

#include <doctest/doctest.h>

#include <string>

namespace plan_summary_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders

namespace {

plan::plan example() {
  plan::plan p;
  p.trace.job = {.micro_batch = 4, .sequence = 25};
  p.layout.chunks.resize(3);
  p.knobs.persistent = {1, 0, 0};
  p.knobs.buffers = 1;
  p.knobs.strategies = {activation::strategy::keep,
                        activation::strategy::checkpoint,
                        activation::strategy::checkpoint,
                        activation::strategy::swap};
  p.at = {.persist = 1, .buffer = 1, .swap = 1, .checkpoint = 2, .chunk = 2048};
  p.predicted.iteration = 10_ms;
  p.predicted.phases = {3_ms, 7_ms, picoseconds{}};
  p.predicted.bound_by = queue_id::h2d;
  p.predicted.device.peak = 1U << 20U;
  p.search = {.candidates = 9, .compiled = 1, .proven = true};
  return p;
}

bool has(plan::plan const& p, std::string const& line) {
  return ("\n" + report::plan_summary(p)).find("\n" + line + "\n") != std::string::npos;
}

}  // namespace

TEST_CASE("what it does, and why") {
  plan::plan const p = example();
  CHECK(has(p, "plan        " + std::string(p.string().view())));
  CHECK(
      has(p,
          "model state 1 of 3 chunks of 2.00 KiB on the device, the rest in host memory through 1 "
          "buffer"));
  CHECK(has(p, "activations 1 kept, 2 checkpointed, 1 swapped"));
  plan::plan streamed = p;
  streamed.at.streamed = 2;
  CHECK(has(streamed,
            "model state 1 of 3 chunks of 2.00 KiB on the device, the rest in host memory through "
            "1 buffer; 2 streamed through the device for their updates"));
  CHECK(has(p,
            "predicted   10.0 ms a step, 10.0k tokens/s, 1.00 MiB on the device, 0 B on the host"));
  CHECK(has(p, "bound by    h2d: forward 3.00 ms (compute), backward 7.00 ms (compute)"));
  CHECK(has(p,
            "why         fastest of 9 candidates, 1 program simulated; no plan of the space is "
            "faster"));
}

TEST_CASE("save levels by name") {
  plan::plan p = example();
  p.trace.shapes = {{.levels = {{.name = "cheap"}, {.name = "attention"}}}};
  p.trace.blocks = {{0}, {0}, {0}, {0}, {0}, {0}};
  p.knobs.strategies.assign(6, activation::strategy::keep);
  p.knobs.levels = {2, 1, 1, 0, 0, 0};
  CHECK(has(p,
            "activations 6 kept (1 at level attention, 2 at level cheap), 0 checkpointed, 0 "
            "swapped"));
}

TEST_CASE("what was changed, what comes next, and a search that met its limit") {
  plan::plan p = example();
  p.changed = {text("persist 999 -> 1")};
  p.search.proven = false;
  p.search.bound = 9_ms;
  p.runner_up = {{.name = "keep_all", .iteration = 11_ms, .device_peak = 1U << 21U}, {.at = p.at}};
  CHECK(has(p, "changed     persist 999 -> 1, the nearest that this job has"));
  CHECK(has(p,
            "why         fastest of 9 candidates, 1 program simulated; the search met its limit, "
            "no plan can be below 9.00 ms"));
  CHECK(has(p, "instead     11.0 ms, 2.00 MiB: keep_all"));
  CHECK(has(p, "instead     0 ps, 0 B: " + std::string(plan::print(p.at).view())));
}

}  // namespace plan_summary_test
