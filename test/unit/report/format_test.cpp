// SPDX-License-Identifier: Apache-2.0
// Amounts for people.

#include "protrain/report/format.hpp"

#include <doctest/doctest.h>

namespace format_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): literals and a folder
using namespace protrain::report;

TEST_CASE("bytes in binary units") {
  CHECK(human_bytes(0) == "0 B");
  CHECK(human_bytes(1023) == "1023 B");
  CHECK(human_bytes(1024) == "1.00 KiB");
  CHECK(human_bytes(1536) == "1.50 KiB");
  CHECK(human_bytes(24ULL << 30U) == "24.0 GiB");
  CHECK(human_bytes(~std::uint64_t{0}) == "16384.0 PiB");
}

TEST_CASE("counts and times") {
  CHECK(human_count(999) == "999");
  CHECK(human_count(2'700'000) == "2.70M");
  CHECK(human_count(124'400'000) == "124.4M");
  CHECK(human_time({0}) == "0 ps");
  CHECK(human_time(12_us) == "12.0 us");
  CHECK(human_time(999_ms) == "999.0 ms");
  CHECK(human_time(1000_ms) == "1.00 s");
  CHECK(human_time(75'000_ms) == "75.0 s");
}

TEST_CASE("columns") {
  CHECK(left("ab", 4) == "ab  ");
  CHECK(right("ab", 4) == "  ab");
  CHECK(left("abcde", 4) == "abcde");
  CHECK(right("abcde", 4) == "abcde");
  CHECK(fixed(2.0 / 3, 3) == "0.667");
}

}  // namespace format_test
