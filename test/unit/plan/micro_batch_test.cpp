// SPDX-License-Identifier: Apache-2.0
// The best size of the micro-batch: that of a loop over all sizes where it must be, and the best of
// what was looked at everywhere.

#include "protrain/plan/micro_batch.hpp"

#include "protrain/core/units.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/analytic.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <set>
#include <vector>

namespace micro_batch_test {

namespace {

using namespace protrain;
using namespace protrain::literals;
using plan::micro_batch_seen;

/// Every size, to the last one.
constexpr plan::micro_batch_limits exact(std::uint64_t most) {
  return {.most = most, .gain = 0, .fineness = 0, .searches = 1000};
}

/// `rate` tokens per second, for sizes of at most `room`.
template <class Rate>
constexpr auto curve(std::uint64_t room, Rate const& rate) {
  return [room, rate](std::uint64_t n) {
    return n > room ? micro_batch_seen{.micro_batch = n}
                    : micro_batch_seen{.micro_batch = n,
                                       .fits = true,
                                       .tokens = rate(n),
                                       .iteration = {1'000'000'000'000}};
  };
}

struct explored {
  std::uint64_t best = 0;
  bool limited = false;
  std::vector<std::uint64_t> sizes{};
};

template <class Look>
constexpr explored explore(Look const& look, plan::micro_batch_limits const& limits) {
  plan::detail::micro_batch_explorer<Look> explorer(look, limits);
  explorer.run();
  explored out{.best = explorer.best(), .limited = explorer.limited()};
  for (micro_batch_seen const& s : std::move(explorer).take()) {
    out.sizes.push_back(s.micro_batch);
  }
  return out;
}

template <class Look>
std::uint64_t loop(Look const& look, std::uint64_t most) {
  micro_batch_seen best = look(1);
  for (std::uint64_t n = 2; n <= most; ++n) {
    micro_batch_seen const next = look(n);
    best = faster(next, best) ? next : best;
  }
  return best.micro_batch;
}

/// Rises to `peak` and falls from there on.
constexpr auto hill(std::uint64_t peak) {
  return [peak](std::uint64_t n) { return n <= peak ? 1000 + n : 1000 + 2 * peak - n; };
}

static_assert(explore(curve(100, hill(13)), exact(100)).best == 13);

trace::trace facts(std::uint64_t micro_batch) {
  return trace::analytic({.layers = 4, .hidden = 256, .heads = 4, .inner = 704, .vocabulary = 1000},
                         {.micro_batch = micro_batch,
                          .sequence = 128,
                          .type = dtype::bf16,
                          .state = model::state_format::split_master},
                         hw::h200x1());
}

constexpr plan::budget budget{.gpu = 48_MiB, .host = 256_MiB};

plan::micro_batch_answer search(plan::budget const& b,
                                plan::request const& wanted = {},
                                plan::micro_batch_limits const& sizes = {}) {
  return plan::search_micro_batch(facts, hw::h200x1(), b, plan::policies<>{}, wanted, {}, sizes);
}

}  // namespace

TEST_CASE("one peak, wherever it is and whatever fits: the loop's answer, in few looks") {
  for (std::uint64_t const room : {1U, 2U, 3U, 5U, 8U, 31U, 64U, 65U, 100U, 200U}) {
    for (std::uint64_t const most : {1U, 2U, 3U, 7U, 8U, 9U, 63U, 64U, 90U}) {
      for (std::uint64_t peak = 1; peak <= 100; ++peak) {
        CAPTURE(room);
        CAPTURE(most);
        CAPTURE(peak);
        auto const look = curve(room, hill(peak));
        explored const found = explore(look, exact(most));
        CHECK(found.best == loop(look, most));
        CHECK_FALSE(found.limited);
        CHECK(found.sizes.size() <= 24);
        CHECK(std::set(found.sizes.begin(), found.sizes.end()).size() == found.sizes.size());
      }
    }
  }
}

TEST_CASE("nothing above the most or twice a size that doesn't fit is looked at") {
  for (std::uint64_t const n : explore(curve(1000, hill(1000)), exact(90)).sizes) {
    CHECK(n <= 90);
  }
  for (std::uint64_t const n : explore(curve(11, hill(1000)), exact(1000)).sizes) {
    CHECK(n <= 16);
  }
}

TEST_CASE("of equals the smallest that was looked at") {
  auto const flat = [](std::uint64_t) { return std::uint64_t{1000}; };
  CHECK(explore(curve(100, flat), exact(100)).best == 1);
  auto const table = [](std::uint64_t n) { return n < 11 ? 1000 + n : 2000; };
  CHECK(explore(curve(15, table), exact(100)).best == 11);
}

TEST_CASE("a size of 1 that doesn't fit ends it, and so does a second one") {
  CHECK(explore(curve(0, hill(9)), exact(100)).sizes == std::vector<std::uint64_t>{1});
  explored const one = explore(curve(1, hill(9)), exact(100));
  CHECK(one.sizes == std::vector<std::uint64_t>{1, 2});
  CHECK(one.best == 1);
}

TEST_CASE("doubling goes on over a dip, ends after two, and where little is gained") {
  auto const dip = [](std::uint64_t n) { return n == 4 ? std::uint64_t{1} : 1000 * n; };
  CHECK(explore(curve(64, dip), exact(64)).best == 64);
  auto const ditch = [](std::uint64_t n) { return n == 4 || n == 8 ? std::uint64_t{1} : 1000 * n; };
  CHECK(explore(curve(64, ditch), exact(64)).best == 3);
  // 1 % more from 8 to 16, 0.5 % from 16 to 32, then 0.25 %.
  auto const slow = [](std::uint64_t n) { return 1'000'000 - 160'000 / n; };
  plan::micro_batch_limits limits{.gain = 9};
  CHECK(explore(curve(1 << 20, slow), limits).sizes ==
        std::vector<std::uint64_t>{1, 2, 4, 8, 16, 32, 64});
  CHECK(explore(curve(1 << 20, slow), limits).best == 64);  // no slower one above it is known
  limits.gain = 4;
  CHECK(explore(curve(1 << 20, slow), limits).best == 128);
  limits.patience = 1;
  CHECK(explore(curve(1 << 20, slow), limits).best == 64);
}

TEST_CASE("gaps that are small for their size stay closed, unless they shall not") {
  auto const look = curve(1000, hill(777));
  plan::micro_batch_limits limits = exact(1000);
  limits.fineness = 4;
  explored const coarse = explore(look, limits);
  CHECK(coarse.best > 777 - 777 / 4);
  CHECK(coarse.best != 777);
  CHECK(explore(look, exact(1000)).best == 777);
  CHECK(coarse.sizes.size() < explore(look, exact(1000)).sizes.size());
}

TEST_CASE("a limit of searches is met and said") {
  auto const look = curve(1000, hill(777));
  for (std::uint32_t n = 1; n < 15; ++n) {
    CAPTURE(n);
    plan::micro_batch_limits limits = exact(1000);
    limits.searches = n;
    explored const found = explore(look, limits);
    CHECK(found.sizes.size() == n);
    CHECK(found.limited);
  }
  plan::micro_batch_limits enough = exact(1);
  enough.searches = 1;
  CHECK_FALSE(explore(look, enough).limited);
}

TEST_CASE("tokens per second: what doesn't fit makes none; comparing is exact") {
  micro_batch_seen const none{.micro_batch = 4};
  micro_batch_seen const a{.micro_batch = 1, .fits = true, .tokens = 3, .iteration = {1'000'000}};
  micro_batch_seen const b{.micro_batch = 2, .fits = true, .tokens = 6, .iteration = {2'000'000}};
  micro_batch_seen c = b;
  c.iteration = {1'999'999};
  CHECK(tokens_per_second(none) == 0);
  CHECK(tokens_per_second(b) == doctest::Approx(3e6));
  CHECK(faster(a, none));
  CHECK_FALSE(faster(none, a));
  CHECK_FALSE(faster(none, none));
  CHECK_FALSE(faster(a, b));
  CHECK_FALSE(faster(b, a));
  CHECK(faster(c, a));
  CHECK_FALSE(faster(c, a, 1));
  c.iteration = {1'997'000};
  CHECK(faster(c, a, 1));
}

TEST_CASE("plans: the answer is the size's own plan, and the best of what it says it saw") {
  auto const answer = search(budget);
  REQUIRE(answer.found.has_value());
  CHECK(answer.found->trace.job.micro_batch == answer.micro_batch);
  CHECK(*answer.found == *plan::search(facts(answer.micro_batch), hw::h200x1(), budget));
  bool listed = false;
  for (micro_batch_seen const& s : answer.seen) {
    CAPTURE(s.micro_batch);
    auto const own = plan::search(facts(s.micro_batch), hw::h200x1(), budget);
    REQUIRE(s.fits == own.has_value());
    if (s.fits) {
      CHECK(s.tokens == s.micro_batch * 128);
      CHECK(s.iteration == own->predicted.iteration);
      CHECK(s.device_peak == own->predicted.device.peak);
      CHECK(s.device_peak <= budget.gpu.value);
    }
    bool const chosen = s.micro_batch == answer.micro_batch;
    listed = listed || chosen;
    micro_batch_seen const best{.micro_batch = answer.micro_batch,
                                .fits = true,
                                .tokens = answer.micro_batch * 128,
                                .iteration = answer.found->predicted.iteration};
    CHECK_FALSE(faster(s, best));
    CHECK((chosen || faster(best, s) || answer.micro_batch < s.micro_batch));
  }
  CHECK(listed);
}

TEST_CASE("plans: a loop over all sizes finds nothing faster, and the same answer twice") {
  auto const answer = search(budget, {}, exact(64));
  REQUIRE(answer.found.has_value());
  auto const look = [](std::uint64_t n) {
    return plan::detail::seen_of(n, plan::search(facts(n), hw::h200x1(), budget));
  };
  CHECK(answer.micro_batch == loop(look, 64));
  CHECK(answer.micro_batch > 1);
  auto const again = search(budget, {}, exact(64));
  CHECK(again.micro_batch == answer.micro_batch);
  CHECK(again.seen == answer.seen);
  CHECK(*again.found == *answer.found);
}

TEST_CASE("plans: where not even one sample fits, that is the answer") {
  plan::budget const small{.gpu = 1_MiB, .host = 256_MiB};
  auto const answer = search(small);
  CHECK(answer.micro_batch == 1);
  REQUIRE_FALSE(answer.found.has_value());
  CHECK(answer.found.failure() == plan::search(facts(1), hw::h200x1(), small).failure());
  CHECK(answer.found.failure().lacks_memory());
  REQUIRE(answer.seen.size() == 1);
  CHECK_FALSE(answer.seen[0].fits);
}

TEST_CASE("plans: what is wanted counts, and what is refused ends it") {
  auto const wanted = search(budget, *plan::parse("checkpoint=999,persist=0"));
  REQUIRE(wanted.found.has_value());
  CHECK(wanted.found->at.persist == 0);
  CHECK(wanted.found->at.checkpoint > 0);
  auto const refused = search(budget, {.levels = plan::level_counts{1}});
  REQUIRE_FALSE(refused.found.has_value());
  CHECK_FALSE(refused.found.failure().lacks_memory());
  CHECK(refused.seen.size() == 1);
}

}  // namespace micro_batch_test
