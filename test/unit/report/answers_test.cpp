// SPDX-License-Identifier: Apache-2.0
// What a little more would buy, and memory by time, as text.

#include "protrain/report/answers.hpp"

#include "protrain/core/units.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/plan.hpp"

#include <doctest/doctest.h>

#include <string>

namespace answers_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using namespace protrain::literals;

namespace {

plan::plan example() {
  plan::plan p;
  p.trace.job = {.micro_batch = 2, .sequence = 100};
  p.predicted.iteration = 10_ms;
  return p;
}

}  // namespace

TEST_CASE("a line each for memory, bandwidth and a rank") {
  plan::explanation e{.gpu = {.more = 1_GiB, .saved = 2_ms},
                      .rank = {.world = 2, .tokens = 400, .fits = true, .iteration = 16_ms}};
  CHECK(report::sensitivity_lines(example(), e) ==
        "sensitivity 1.00 GiB more of device memory saves 2.00 ms a step\n"
        "sensitivity 10 % more bandwidth to and from the host saves nothing\n"
        "sensitivity a rank more takes 16.0 ms for a step of 400 tokens: 25.0k tokens/s instead of "
        "20.0k\n");
  e.bandwidth.saved = 3_us;
  e.rank = {};
  CHECK(report::sensitivity_lines(example(), e) ==
        "sensitivity 1.00 GiB more of device memory saves 2.00 ms a step\n"
        "sensitivity 10 % more bandwidth to and from the host saves 3.00 us a step\n"
        "sensitivity a rank more has no device: the machine has no more than there are ranks\n");
  e.rank = {.world = 2, .lacks = {.code = errc::no_host_memory, .short_host = 77}};
  CHECK(report::sensitivity_lines(example(), e)
            .find("sensitivity a rank more: the host budget is short by 77 bytes; nearest is ") !=
        std::string::npos);
}

TEST_CASE("memory by time, each place in the unit that suits its largest") {
  plan::memory_over_time const m{
      .length = 10_ms, .device = {3 << 20, 1 << 30, 3 << 29}, .host = {0, 512, 1023}};
  CHECK(report::filled_lines(m) ==
        "filled at most in each of 3 equal parts of a step\n"
        "  device, GiB         0.0    1.0    1.5\n"
        "  host, B               0    512   1023\n");
  CHECK(report::filled_lines({}).find("each of 0 equal parts") != std::string::npos);
}

}  // namespace answers_test
