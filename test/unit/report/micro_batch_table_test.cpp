// SPDX-License-Identifier: Apache-2.0
// Sizes of the micro-batch, as a table.

#include "protrain/report/micro_batch_table.hpp"

#include "protrain/core/units.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/micro_batch.hpp"
#include "protrain/plan/plan.hpp"

#include <doctest/doctest.h>

#include <string>

namespace micro_batch_table_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using namespace protrain::literals;

TEST_CASE("a line each in ascending order, a star at the chosen one, and whether it is all") {
  plan::micro_batch_answer answer{.micro_batch = 2, .found = plan::plan{}};
  answer.seen = {
      {.micro_batch = 4},
      {.micro_batch = 2, .fits = true, .tokens = 200, .iteration = 10_ms, .device_peak = 3U << 20U},
      {.micro_batch = 1, .fits = true, .tokens = 100, .iteration = 8_ms, .device_peak = 2U << 20U}};
  char const* const lines =
      "micro-batch           a step    tokens/s      device\n"
      "  1                  8.00 ms       12500    2.00 MiB\n"
      "* 2                  10.0 ms       20000    3.00 MiB\n"
      "  4                 does not fit\n";
  CHECK(report::micro_batch_table(answer) == lines);
  answer.limited = true;
  CHECK(report::micro_batch_table(answer) ==
        lines + std::string("  more sizes may be faster: the limit of searches was met\n"));
}

TEST_CASE("nothing is chosen where nothing fits") {
  plan::micro_batch_answer const answer{.found = plan::infeasible{}, .seen = {{.micro_batch = 1}}};
  CHECK(report::micro_batch_table(answer) ==
        "micro-batch           a step    tokens/s      device\n"
        "  1                 does not fit\n");
}

}  // namespace micro_batch_table_test
