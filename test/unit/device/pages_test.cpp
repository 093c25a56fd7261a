// SPDX-License-Identifier: Apache-2.0
// Whole pages, no more, and an error that says what failed.

#include "protrain/device/pages.hpp"

#include "protrain/device/error.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace pages_test {

namespace {

using protrain::space;
using protrain::device::device_error;
using protrain::device::pages;

TEST_CASE("pages: whole pages, at most one more than asked") {
  pages p;
  CHECK(p.size() == 0);
  for (std::uint64_t const bytes : {1ULL, 4096ULL, 4097ULL, 135'790'592ULL}) {
    REQUIRE(p.try_reserve(bytes));
    CHECK(p.size() >= bytes);
    CHECK(p.size() < bytes + 4096);
    CHECK(reinterpret_cast<std::uintptr_t>(p.data()) % 4096 == 0);
    std::memset(p.data(), 1, 1);
  }
  CHECK_FALSE(p.try_reserve(~std::uint64_t{0}));
  CHECK_FALSE(p.try_reserve(std::uint64_t{1} << 62U));
  CHECK(p.data() == nullptr);
  CHECK(p.try_reserve(0));
}

TEST_CASE("pinned memory rounds up to a power of two: whole pages instead, for many of any size") {
  struct request {
    std::uint64_t count;
    std::uint64_t bytes;
  };
  for (request const& r :
       {request{84, 135'790'592}, {3, 1}, {5, 4097}, {9, 1'048'577}, {2, 999'999'999}}) {
    std::vector<pages> held(r.count);
    std::uint64_t locked = 0;
    for (pages& each : held) {
      REQUIRE(each.try_reserve(r.bytes));
      locked += each.size();
    }
    CHECK(locked >= r.count * r.bytes);
    CHECK(locked < r.count * (r.bytes + 4096));
    CHECK(locked <= r.count * std::max<std::uint64_t>(std::bit_ceil(r.bytes), 4096));
  }
  CHECK(10 * std::bit_ceil(135'790'592U) >
        19 * std::uint64_t{135'790'592});  // nearly twice as much
}

TEST_CASE("pages: moving hands over, move assignment frees what was held") {
  pages a;
  REQUIRE(a.try_reserve(100));
  std::byte* const at = a.data();
  pages b(std::move(a));
  CHECK(b.data() == at);
  pages c;
  REQUIRE(c.try_reserve(5000));
  c = std::move(b);
  CHECK(c.data() == at);
  CHECK(c.size() == 4096);
  c.clear();
  CHECK(c.size() == 0);
}

TEST_CASE("device_error: names the call, the reason and the place") {
  device_error const e("record", "out of events");
  std::string const text = e.what();
  CHECK(text.rfind("record: out of events (", 0) == 0);
  CHECK(text.find("pages_test.cpp:") != std::string::npos);
  CHECK(e.call() == "record");
  CHECK(e.where().line() > 0);
  auto const refused = protrain::device::reserve_error(space::host, 10, 4096, 0);
  CHECK(std::string(refused.what())
            .find("reserve: pinned host memory: asked for 10 bytes while "
                  "4096 were held; plan with") == 0);
  CHECK(refused.reason().find("pinned host memory: asked for 10 bytes") == 0);
}

}  // namespace

}  // namespace pages_test
