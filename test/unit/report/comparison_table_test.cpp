// SPDX-License-Identifier: Apache-2.0
// Ways to train, as a table.

#include "protrain/report/comparison_table.hpp"

#include "protrain/core/units.hpp"
#include "protrain/plan/compare.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/plan.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace comparison_table_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using namespace protrain::literals;

TEST_CASE("a line each: numbers of those that fit, what the others lack") {
  plan::plan fits;
  fits.trace.job = {.micro_batch = 2, .sequence = 100};
  fits.at = {.persist = 1, .chunk = 2048};
  fits.predicted.iteration = 10_ms;
  fits.predicted.device.peak = 3U << 20U;
  fits.predicted.host.peak = 2048;
  plan::infeasible both{.code = errc::no_device_memory};
  both.short_device = 1U << 20U;
  both.short_host = 1U << 11U;
  plan::infeasible const host{.code = errc::no_host_memory, .short_host = 4096};
  plan::infeasible const refused{.code = errc::invalid_argument, .reason = "it is not allowed"};
  std::vector<plan::contender> all;
  all.push_back({"ours", fits});
  all.push_back({"all kept", both});
  all.push_back({"all offloaded", host});
  all.push_back({"other", refused});
  CHECK(report::comparison_table(all) ==
        "compare               a step    tokens/s      device        host  plan\n"
        "  ours               10.0 ms       20000    3.00 MiB    2.00 KiB  " +
            std::string(fits.string().view()) +
            "\n"
            "  all kept          does not fit: short by 1.00 MiB on the device and 2.00 KiB on the "
            "host\n"
            "  all offloaded     does not fit: short by 4.00 KiB on the host\n"
            "  other             refused: it is not allowed\n");
}

}  // namespace comparison_table_test
