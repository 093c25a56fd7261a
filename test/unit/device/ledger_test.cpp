// SPDX-License-Identifier: Apache-2.0
// The ledger against a count by hand and against an oracle that knows every byte.

#include "protrain/device/ledger.hpp"

#include "protrain/core/philox.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace ledger_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one class
using device::usage;

constexpr std::size_t at(category c) { return static_cast<std::size_t>(c); }

std::uint64_t total(std::array<std::uint64_t, category_count> const& all) {
  return std::accumulate(all.begin(), all.end(), std::uint64_t{0});
}

TEST_CASE("ledger: a later, larger peak replaces the categories of an earlier one") {
  device::ledger ledger;
  ledger.lease(space::device, 0, 256, category::parameters);
  ledger.lease(space::device, 256, 512, category::scratch);
  ledger.settle();
  ledger.release(space::device, 256, 512, category::scratch);
  ledger.settle();
  CHECK(ledger.usage_of(space::device).peak == 768);
  CHECK(ledger.usage_of(space::device).at_peak[at(category::scratch)] == 512);
  ledger.lease(space::device, 1024, 10, category::batch);
  // Not settled yet: the answer describes now.
  CHECK(ledger.usage_of(space::device).peak == 1280);
  CHECK(ledger.usage_of(space::device).at_peak[at(category::batch)] == 10);
  ledger.settle();
  usage const u = ledger.usage_of(space::device);
  CHECK(u.at_peak[at(category::scratch)] == 0);
  CHECK(u.at_peak[at(category::padding)] == 246);
  CHECK(u.at_peak[at(category::fragmentation)] == 768);
  CHECK(total(u.at_peak) == u.peak);
  CHECK(u.maximum[at(category::scratch)] == 512);
  CHECK(u.maximum[at(category::fragmentation)] == 768);
}

TEST_CASE("ledger: spaces are apart, and sizes are 64 bits") {
  device::ledger ledger;
  std::uint64_t const large = std::uint64_t{1} << 42U;
  ledger.lease(space::host, 0, large + 1, category::swapped);
  ledger.lease(space::device, 0, 1, category::scratch);
  ledger.settle();
  CHECK(ledger.usage_of(space::host).peak == large + 256);
  CHECK(ledger.usage_of(space::host).at_peak[at(category::padding)] == 255);
  CHECK(ledger.usage_of(space::device).peak == 256);
}

TEST_CASE("ledger: what is derived can't be leased") {
  static bool called = false;
  struct broken {};
  auto const old = set_violation_handler([](violation const&) {
    called = true;
    throw broken{};
  });
  device::ledger ledger;
  CHECK_THROWS_AS(ledger.lease(space::device, 0, 1, category::padding), broken);
  CHECK_THROWS_AS(ledger.lease(space::device, 0, 1, category::fragmentation), broken);
  CHECK_THROWS_AS(ledger.lease(space::device, ~std::uint64_t{255}, 256, category::batch), broken);
  CHECK(called);
  set_violation_handler(old);
}

/// Recounts everything from the list of leases.
struct oracle {
  struct held {
    std::uint64_t offset, bytes;
    category what;
  };
  std::vector<held> live{};
  usage want{};
  bool reached = true;

  std::array<std::uint64_t, category_count> now() const {
    std::array<std::uint64_t, category_count> all{};
    for (held const& l : live) {
      all[at(l.what)] += l.bytes;
      all[at(category::padding)] += granules(l.bytes) - l.bytes;
    }
    return all;
  }
  std::uint64_t extent() const {
    std::uint64_t end = 0;
    for (held const& l : live) {
      end = std::max(end, l.offset + granules(l.bytes));
    }
    return end;
  }
  bool overlaps(std::uint64_t offset, std::uint64_t bytes) const {
    return std::any_of(live.begin(), live.end(), [&](held const& l) {
      return offset < l.offset + granules(l.bytes) && l.offset < offset + granules(bytes);
    });
  }
  void leased() {
    auto const all = now();
    for (std::size_t i = 0; i < at(category::fragmentation); ++i) {
      want.maximum[i] = std::max(want.maximum[i], all[i]);
    }
    reached = reached && extent() <= want.peak;
    want.peak = std::max(want.peak, extent());
  }
  void settle() {
    auto all = now();
    auto& most = want.maximum[at(category::fragmentation)];
    most = std::max(most, extent() - total(all));
    if (!reached) {
      all[at(category::fragmentation)] = want.peak - total(all);
      want.at_peak = all;
      reached = true;
    }
    want.live = live.size();
  }
};

TEST_CASE("ledger: agrees with a recount over random leases") {
  for (std::uint64_t seed = 1; seed <= 30; ++seed) {
    CAPTURE(seed);
    random_stream const draws{.key = seed};
    device::ledger ledger;
    oracle o;
    std::uint64_t drawn = 0;
    auto const below = [&](std::uint64_t n) { return draws.word(drawn++) % n; };
    for (int position = 0; position < 200; ++position) {
      while (!o.live.empty() && below(3) == 0) {
        std::size_t const i = below(o.live.size());
        auto const l = o.live[i];
        ledger.release(space::device, l.offset, l.bytes, l.what);
        o.live.erase(o.live.begin() + static_cast<std::ptrdiff_t>(i));
      }
      while (below(3) != 0) {
        std::uint64_t const offset = 256 * below(64 + static_cast<std::uint64_t>(position));
        std::uint64_t const bytes = 1 + below(1500);
        auto const what = static_cast<category>(below(10));
        if (!o.overlaps(offset, bytes)) {
          ledger.lease(space::device, offset, bytes, what);
          o.live.push_back({offset, bytes, what});
          o.leased();
        }
      }
      ledger.settle();
      o.settle();
      usage const got = ledger.usage_of(space::device);
      REQUIRE(got == o.want);
      REQUIRE(total(got.at_peak) == got.peak);
    }
  }
}

}  // namespace

}  // namespace ledger_test
