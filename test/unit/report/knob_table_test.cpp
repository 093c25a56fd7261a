// SPDX-License-Identifier: Apache-2.0
// What knobs do, in words.

#include "protrain/report/knob_table.hpp"

#include "protrain/core/units.hpp"
#include "protrain/plan/effects.hpp"
#include "protrain/plan/plan.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace knob_table_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using namespace protrain::literals;

namespace {

plan::plan example() {
  plan::plan p;
  p.at = {.persist = 1, .buffer = 2, .swap = 1, .checkpoint = 2, .chunk = 2048};
  p.predicted.iteration = 10_ms;
  p.predicted.device.peak = 3U << 20U;
  p.predicted.host.peak = 2048;
  return p;
}

}  // namespace

TEST_CASE("a line for each knob: before, after, and the differences") {
  plan::plan const p = example();
  plan::numbers at = p.at;
  at.swap = 0;
  CHECK(report::knob_table(p,
                           {{.knob = "swap",
                             .at = at,
                             .iteration = 8_ms,
                             .device_peak = 4_MiB,
                             .host_peak = 1_KiB}}) ==
        "knob        swap=1 -> 0: 8.00 ms a step (-2.00 ms), 4.00 MiB on the device (+1.00 MiB), "
        "1.00 KiB on the host (-1.00 KiB)\n");
}

TEST_CASE("what doesn't change is said so") {
  plan::plan const p = example();
  plan::numbers at = p.at;
  at.buffer = 1;
  CHECK(report::knob_table(p,
                           {{.knob = "buffer",
                             .at = at,
                             .iteration = 10_ms,
                             .device_peak = 3_MiB,
                             .host_peak = 2_KiB}}) ==
        "knob        buffer=2 -> 1: 10.0 ms a step (as long), 3.00 MiB on the device (as much), "
        "2.00 KiB on the host (as much)\n");
}

TEST_CASE("a long list is cut, and what the string leaves out has a word") {
  plan::plan p = example();
  p.at.listed = true;
  for (std::uint32_t c = 0; c < 40; ++c) {
    p.at.persist_set.push_back(2 * c);
  }
  std::string const lines = report::knob_table(
      p, {{.knob = "persist", .at = {.persist = 0}}, {.knob = "unroll", .at = {.unroll = 1}}});
  CHECK(lines.find("persist=0:2:4:6:8:10:12:.. -> 0: ") != std::string::npos);
  CHECK(lines.find("unroll=as usual -> 1: ") != std::string::npos);
}

TEST_CASE("nothing turned, nothing said") { CHECK(report::knob_table(example(), {}).empty()); }

}  // namespace knob_table_test
