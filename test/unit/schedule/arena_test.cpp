// SPDX-License-Identifier: Apache-2.0
// Address assignment against an interval checker that knows every granule's last users.

#include "protrain/schedule/detail/arena.hpp"

#include "protrain/core/math.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace arena_test {

namespace {

using namespace protrain;
using schedule::detail::arena;
using schedule::detail::clock;

constexpr std::uint64_t mebi = 1U << 20U;

/// What is live, and who used each granule last.
class checker {
 public:
  /// False if the range overlaps what is live, or isn't ordered after a last user.
  bool take(arena::placement const& got, std::uint64_t bytes) {
    std::uint64_t const end = got.offset + granules(bytes);
    auto const next = live_.lower_bound(got.offset);
    bool const free = (next == live_.end() || end <= next->first) &&
                      (next == live_.begin() || std::prev(next)->second <= got.offset);
    live_[got.offset] = end;
    bool ordered = true;
    for (std::uint64_t g = got.offset / address_granule; g < end / address_granule; ++g) {
      auto const last = users_.find(g);
      for (std::size_t q = 0; last != users_.end() && q < queue_count; ++q) {
        ordered = ordered && got.before[q] >= last->second[q];
      }
      users_.erase(g);
    }
    return free && ordered && got.offset % address_granule == 0;
  }
  void give(std::uint64_t offset, clock const& last) {
    for (std::uint64_t g = offset / address_granule; g < live_.at(offset) / address_granule; ++g) {
      users_[g] = last;
    }
    live_.erase(offset);
  }
  std::uint64_t extent() const { return live_.empty() ? 0 : live_.rbegin()->second; }
  auto const& live() const { return live_; }

 private:
  std::map<std::uint64_t, std::uint64_t> live_{};
  std::map<std::uint64_t, clock> users_{};
};

}  // namespace

TEST_CASE("freed block handed to a larger request: 150 MiB freed, 200 MiB asked, and other sizes") {
  for (auto const& [freed, asked] : std::vector<std::pair<std::uint64_t, std::uint64_t>>{
           {150 * mebi, 200 * mebi}, {256, 257}, {1, 512}, {1ULL << 40U, (1ULL << 40U) + 1}}) {
    arena a;
    std::uint64_t const first = a.take(freed).offset;
    std::uint64_t const behind = a.take(mebi).offset;
    CHECK(first == 0);
    CHECK(behind == granules(freed));
    a.give(first, {7, 0, 0, 0, 0, 0});
    arena::placement const large = a.take(asked);
    CHECK(large.offset == behind + mebi);  // beyond everything, and after nobody
    CHECK(large.before == clock{});
    arena::placement const same = a.take(freed);
    CHECK(same.offset == first);  // the hole is for what fits, after whoever used it
    CHECK(same.before == clock{7, 0, 0, 0, 0, 0});
  }
}

TEST_CASE("freed block handed to a larger request: 10,000 random requests never overlap") {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    CAPTURE(seed);
    test::random_source r(seed);
    arena a;
    checker oracle;
    for (std::uint32_t i = 1; i <= 10'000; ++i) {
      std::size_t const live = oracle.live().size();
      if (live > 0 && (live > 60 || r.chance(45))) {
        auto const at =
            std::next(oracle.live().begin(), static_cast<std::ptrdiff_t>(r.between(0, live - 1)));
        std::uint64_t const offset = at->first;
        clock last{};
        last[r.between(0, queue_count - 1)] = i;
        a.give(offset, last);
        oracle.give(offset, last);
      } else {
        std::uint64_t const bytes = r.chance(10) ? 1 : r.between(1, 20'000);
        std::uint64_t const before = oracle.extent();
        arena::placement const got = a.take(bytes);
        REQUIRE(oracle.take(got, bytes));
        REQUIRE(got.offset <= before);  // the first gap, or right behind
      }
    }
  }
}

}  // namespace arena_test
