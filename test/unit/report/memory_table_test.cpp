// SPDX-License-Identifier: Apache-2.0
// The table of memory: lines for what occurs, and whether prediction and count agree.

#include "protrain/report/memory_table.hpp"

#include <doctest/doctest.h>

#include <string>

namespace memory_table_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders

namespace {

constexpr auto saved = static_cast<std::size_t>(category::activations);
constexpr auto scratch = static_cast<std::size_t>(category::scratch);

schedule::memory_report said() {
  schedule::memory_report out{.peak = 1536};
  out.at_peak[saved] = 1536;
  out.maximum[saved] = 1536;
  out.maximum[scratch] = 77;
  return out;
}

}  // namespace

TEST_CASE("a line per category that occurs") {
  std::string const table = report::memory_table(space::device, said());
  CHECK(table ==
        "device bytes                   at peak           maximum\n"
        "  activations                     1536              1536\n"
        "  scratch                            0                77\n"
        "  peak                            1536              1536\n");
}

TEST_CASE("measured beside predicted") {
  device::usage const counted{
      .peak = 1536, .at_peak = said().at_peak, .maximum = said().maximum, .live = 3};
  std::string const table = report::memory_table(space::host, said(), &counted);
  CHECK(
      table.find("host bytes                     at peak          measured           maximum      "
                 "    measured\n") == 0);
  CHECK(
      table.find("  scratch                            0                 0                77      "
                 "          77\n") != std::string::npos);
}

TEST_CASE("agreement is of every number") {
  device::usage counted{.peak = 1536, .at_peak = said().at_peak, .maximum = said().maximum};
  CHECK(report::agree(said(), counted));
  counted.maximum[scratch] = 78;
  CHECK_FALSE(report::agree(said(), counted));
  counted = {.peak = 1537, .at_peak = said().at_peak, .maximum = said().maximum};
  CHECK_FALSE(report::agree(said(), counted));
}

}  // namespace memory_table_test
