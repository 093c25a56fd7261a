// SPDX-License-Identifier: Apache-2.0
// The search over save levels against a loop over every way to divide up to six blocks among
// strategies and up to four levels, for every number of persistent chunks.

#include "protrain/activation/assignment.hpp"
#include "protrain/core/units.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace all_levels_test {

namespace {

using namespace protrain;

constexpr auto with_levels = policies<>{}.with(activation::levels{});
/// Proven, however long it takes.
constexpr plan::limits patient{
    .programs = 1U << 30U, .instructions = std::uint64_t{1} << 40U, .candidates = 1U << 30U};

using answer = result<plan::plan, plan::infeasible>;

/// Levels that keep less and less of `s` and take longer and longer to rebuild.
void add_levels(test::random_source& r, trace::block_shape& s) {
  constexpr std::uint64_t step = 20 * address_granule;
  std::uint64_t const levels = r.between(trace::most_levels - 1, trace::most_levels);
  s.saved = bytes{step * (levels + r.between(1, 3))};
  s.levels.clear();
  picoseconds time{};
  for (std::uint64_t k = 1; k <= levels; ++k) {
    time += picoseconds{r.between(1, 1 + s.forward.value / 2)};
    s.levels.push_back({.name = "level",
                        .saved = bytes{s.saved.value - k * step},
                        .rebuilt = bytes{k * step},
                        .reads_input = true,
                        .rebuild = time});
  }
}

/// Few chunks and, but for one job in five, only blocks that are the search's to decide about.
test::planning_case make_job(std::uint64_t seed, std::size_t blocks) {
  test::planning_case c{};
  for (std::size_t chunks = 99; c.facts.blocks.size() != blocks || chunks > 2; seed += 1000) {
    c = test::make_planning_case(seed, blocks);
    auto const p =
        plan::make(c.facts, c.machine, test::everything(), policies<>{}, plan::keep_all());
    chunks = p ? p->layout.chunks.size() : 99;
  }
  test::random_source r(seed);
  bool const pinned = r.chance(20);
  c.facts.job.accumulate = 1;
  for (trace::block_shape& s : c.facts.shapes) {
    s.pinned = pinned ? s.pinned : trace::pin::free;
    add_levels(r, s);
  }
  return c;
}

/// Asks for every division, one after the other; buffers and update sites are left to the search.
class every_division {
 public:
  every_division(test::planning_case const& c, plan::budget const& b) : c_(c), b_(b) {
    for (shape_id const s : c.facts.blocks) {
      trace::block_shape const& shape = c.facts.shapes[s.index()];
      bool const free = shape.pinned == trace::pin::free;
      free_ += free ? 1U : 0U;
      depth_ = free ? std::max(depth_, shape.levels.size()) : depth_;
    }
  }

  std::optional<picoseconds> best(std::size_t chunks) {
    for (request_.persist = 0; *request_.persist <= chunks; ++*request_.persist) {
      divide(0, free_);
    }
    return best_;
  }
  std::uint64_t asked() const { return asked_; }

 private:
  /// Position 0: swapped; 1: checkpointed; then the levels. What is left is kept.
  void divide(std::size_t at, std::uint64_t left) {
    if (at == 2 + depth_) {
      ask();
      return;
    }
    for (std::uint64_t n = 0; n <= left; ++n) {
      count_[at] = n;
      divide(at + 1, left - n);
    }
    count_[at] = 0;
  }
  void ask() {
    request_.swap = count_[0];
    request_.checkpoint = count_[1];
    request_.levels.emplace();
    std::copy_n(count_.begin() + 2, trace::most_levels, request_.levels->begin());
    answer const found = plan::make(c_.facts, c_.machine, b_, with_levels, request_);
    ++asked_;
    if (found && (!best_ || found->predicted.iteration < *best_)) {
      best_ = found->predicted.iteration;
    }
  }

  test::planning_case const& c_;
  plan::budget const& b_;
  plan::request request_{};
  std::array<std::uint64_t, 2 + trace::most_levels> count_{};
  std::uint64_t free_ = 0;
  std::size_t depth_ = 0;
  std::uint64_t asked_ = 0;
  std::optional<picoseconds> best_{};
};

/// Where saving everything doesn't fit and saving nothing does.
plan::budget tight(test::random_source& r, test::planning_case const& c) {
  plan::budget out = test::everything();
  auto const peak = [&](plan::request const& fixed) {
    return plan::make(c.facts, c.machine, out, with_levels, fixed)->predicted.device.peak;
  };
  std::uint64_t const most = peak(plan::keep_all());
  std::uint64_t const least = std::min(most, peak(plan::offload_and_checkpoint_all()));
  out.gpu = {r.between(least, most)};
  return out;
}

}  // namespace

TEST_CASE("six blocks and four levels: the search equals a loop over every division") {
  std::uint64_t leveled = 0;
  std::uint64_t asked = 0;
  std::uint64_t const jobs = test::scaled(40);
  for (std::uint64_t seed = 0; seed < jobs; ++seed) {
    CAPTURE(seed);
    test::planning_case const c = make_job(seed, seed % 5 == 0 ? 6 : 2 + seed % 4);
    test::random_source r(seed);
    plan::budget const b = tight(r, c);
    answer const found = plan::search(c.facts, c.machine, b, with_levels, patient);
    auto const kept =
        plan::make(c.facts, c.machine, test::everything(), with_levels, plan::keep_all());
    every_division all(c, b);
    auto const best = all.best(kept->layout.chunks.size());
    asked += all.asked();
    REQUIRE(found.has_value() == best.has_value());
    if (found) {
      REQUIRE(found->search.proven);
      REQUIRE(found->predicted.iteration == *best);
      leveled += found->knobs.levels.empty() ? 0U : 1U;
    }
  }
  MESSAGE(leveled, " of ", jobs, " plans hold levels; ", asked, " divisions");
  CHECK(leveled > 0);
}

}  // namespace all_levels_test
