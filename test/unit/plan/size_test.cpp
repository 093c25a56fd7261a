// SPDX-License-Identifier: Apache-2.0
// SIZE: every unit, exact decimals, the edges of 64 bits, and what is refused.

#include "protrain/plan/size.hpp"

#include "protrain/core/text.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>

namespace size_test {

using protrain::text;
using protrain::plan::append_size;
using protrain::plan::parse_size;

TEST_CASE("integers and decimals with every unit") {
  struct row {
    std::string_view in;
    std::uint64_t bytes;
  };
  for (row const& r : {row{"0", 0},
                       row{"17", 17},
                       row{"17B", 17},
                       row{"3kB", 3'000},
                       row{"3MB", 3'000'000},
                       row{"3GB", 3'000'000'000},
                       row{"3TB", 3'000'000'000'000},
                       row{"3KiB", 3'072},
                       row{"3MiB", 3'145'728},
                       row{"24GiB", 25'769'803'776},
                       row{"2TiB", 2'199'023'255'552},
                       row{"1.5GiB", 1'610'612'736},
                       row{"0.1GB", 100'000'000},
                       row{"0.1GiB", 107'374'182},
                       row{"1.50000000000000000000000000kB", 1'500},
                       row{"0.99999999999999999999999B", 0},
                       row{"00012", 12},
                       row{"18446744073709551615", 18'446'744'073'709'551'615U},
                       row{"16777215.99999TiB", 18'446'744'073'698'556'499U}}) {
    CAPTURE(r.in.data());
    auto const got = parse_size(r.in);
    REQUIRE(got.has_value());
    CHECK(got->value == r.bytes);
  }
}

TEST_CASE("anything else is refused, with an example") {
  for (std::string_view const in : {"",
                                    "GiB",
                                    "-1GiB",
                                    "+1GiB",
                                    "1 GiB",
                                    "1gib",
                                    "1KB",
                                    "1.GiB",
                                    ".5GiB",
                                    "1.5",
                                    "1.5.5GB",
                                    "1e9",
                                    "0x10",
                                    "24Gi",
                                    "24G",
                                    "1GiBB",
                                    " 1GiB",
                                    "1GiB "}) {
    CAPTURE(in.data());
    auto const got = parse_size(in);
    REQUIRE(!got.has_value());
    CHECK(got.failure().value.view() == in);
    CHECK(std::string_view(got.failure().reason).find("24GiB") != std::string_view::npos);
  }
}

TEST_CASE("sizes beyond 64 bits are refused, not wrapped") {
  for (std::string_view const in :
       {"18446744073709551616", "16777216TiB", "99999999999999999999999GiB", "18446744073.8GB"}) {
    CAPTURE(in.data());
    auto const got = parse_size(in);
    REQUIRE(!got.has_value());
    CHECK(std::string_view(got.failure().reason).find("2^64") != std::string_view::npos);
  }
}

TEST_CASE("a printed size reads back") {
  for (std::uint64_t const n :
       {0ULL, 1ULL, 1023ULL, 1024ULL, 1536ULL, 1'000'000ULL, 1ULL << 40U, (1ULL << 40U) + 1}) {
    text out;
    append_size(out, n);
    CHECK(parse_size(out.view())->value == n);
  }
  text out;
  append_size(out, 3ULL << 30U);
  CHECK(out.view() == "3GiB");
}

}  // namespace size_test
