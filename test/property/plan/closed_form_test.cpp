// SPDX-License-Identifier: Apache-2.0
// The closed form's search against its equations, evaluated one by one for every combination of
// numbers: the same answer, and the same shortage where nothing fits.

#include "protrain/plan/closed_form.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_memory.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/paper_time.hpp"
#include "protrain/link/derated.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

namespace closed_form_test {

namespace {

using namespace protrain;

constexpr std::uint64_t cases = 3000;

/// Times from 0 to 9, so that ties are frequent.
picoseconds random_time(test::random_source& r) { return {r.between(0, 9)}; }

cost::paper_chunk random_chunk(test::random_source& r) {
  cost::paper_chunk c{.alone = {.gather = random_time(r),
                                .upload = random_time(r),
                                .reduce = random_time(r),
                                .offload = random_time(r)},
                      .gpu_optimizer = random_time(r),
                      .cpu_optimizer = random_time(r) * 2,
                      .persistent = {r.between(0, 60)},
                      .own_slot = {r.chance(20) ? r.between(1, 80) : 0}};
  c.beside_swap = c.alone;
  c.beside_swap.upload += random_time(r);
  c.beside_swap.offload += random_time(r);
  return c;
}

/// Operators of one block; what it saves is theirs together.
void add_operators(test::random_source& r, cost::paper_job& j, std::uint32_t block) {
  bytes saved{};
  for (std::uint64_t n = r.between(1, 3), k = 0; k < n; ++k) {
    auto const signed_between = [&](std::int64_t low, std::uint64_t range) {
      return low + static_cast<std::int64_t>(r.between(0, range));
    };
    cost::paper_operator const o{.block = block,
                                 .first = k == 0,
                                 .current_prior = signed_between(-5, 20),
                                 .peak_prior = signed_between(0, 20),
                                 .current_own = signed_between(-15, 20),
                                 .peak_own = signed_between(0, 40),
                                 .activations = {r.between(0, 30)}};
    saved += o.activations;
    j.operators.push_back(o);
  }
  j.blocks[block].swap_saving = saved;
  j.blocks[block].checkpoint_saving = {r.chance(50) ? saved.value : r.between(0, saved.value)};
}

/// Any values that the equations accept, also such as no trace yields.
cost::paper_job random_job(std::uint64_t seed, std::uint64_t chunks, std::uint64_t blocks) {
  test::random_source r(seed);
  cost::paper_job j{.buffer = {r.chance(10) ? 0 : r.between(1, 40)},
                    .forward_end = {2000},
                    .interval = r.between32(1, 4),
                    .alpha = r.chance(50) ? 1100U : r.between32(1, 2000),
                    .drain = r.chance(50),
                    .micro_batches = r.chance(60) ? 1U : r.between32(2, 3),
                    .waits = r.chance(30)};
  for (std::uint64_t n = r.between(1, chunks), c = 0; c < n; ++c) {
    j.chunks.push_back(random_chunk(r));
  }
  std::uint32_t home = 0;
  auto const last = static_cast<std::uint32_t>(j.chunks.size() - 1);
  for (std::uint64_t n = r.between(1, blocks), b = 0; b < n; ++b) {
    home = std::min(last, home + r.between32(0, 2));
    cost::paper_block const block{
        .chunk = home,
        .pinned = r.chance(10) ? static_cast<trace::pin>(r.between(1, 3)) : trace::pin::free,
        .forward = random_time(r),
        .backward = random_time(r) * 2,
        .swap_out = random_time(r),
        .swap_in = random_time(r)};
    j.chunks[home].forward += block.forward;
    j.chunks[home].backward += block.backward;
    j.blocks.push_back(block);
  }
  for (auto b = static_cast<std::uint32_t>(j.blocks.size()); b-- > 0;) {
    add_operators(r, j, b);
  }
  for (std::uint32_t n = 0; n <= j.chunks.size(); ++n) {
    std::uint32_t const most = r.between32(0, last + 1 - n);
    j.buffers.push_back({.fewest = r.between32(0, most), .most = most});
  }
  return j;
}

struct candidate {
  picoseconds time{};
  bytes peak{};
  cost::paper_numbers at{};
};

std::vector<candidate> every_candidate(cost::paper_job const& j) {
  std::vector<candidate> out;
  std::uint32_t const free = activation::free_blocks(cost::detail::pins_of(j));
  for (std::uint32_t s = 0; s <= cost::most_swapped(j); ++s) {
    for (std::uint32_t c = 0; c <= free - s; ++c) {
      for (std::uint32_t p = 0; p <= j.chunks.size(); ++p) {
        for (std::uint32_t b = j.buffers[p].fewest; b <= j.buffers[p].most; ++b) {
          cost::paper_numbers const at{p, b, s, c};
          cost::paper_plan const plan = cost::make_paper_plan(j, at);
          out.push_back({cost::iteration_time(j, plan), cost::peak_memory(j, plan), at});
        }
      }
    }
  }
  return out;
}

void check(cost::paper_job const& j, test::random_source& r) {
  std::vector<candidate> const all = every_candidate(j);
  bytes least{std::numeric_limits<std::uint64_t>::max()};
  bytes most{};
  for (candidate const& c : all) {
    least = std::min(least, c.peak);
    most = std::max(most, c.peak);
  }
  for (int k = 0; k < 4; ++k) {
    bytes const capacity{r.between(least.value - least.value / 8, most.value + 1)};
    candidate const* best = nullptr;
    for (candidate const& c : all) {
      bool const better = best == nullptr || std::tie(c.time, c.peak, c.at) <
                                                 std::tie(best->time, best->peak, best->at);
      best = c.peak < capacity && better ? &c : best;
    }
    auto const found = plan::search_closed_form(j, capacity);
    REQUIRE(found.has_value() == (best != nullptr));
    if (best == nullptr) {
      REQUIRE(found.failure().code == errc::no_device_memory);
      REQUIRE(found.failure().number == least.value + 1 - capacity.value);
      continue;
    }
    REQUIRE(found->iteration == best->time);
    REQUIRE(found->peak == best->peak);
    REQUIRE(found->at == best->at);
    REQUIRE(found->strategies == cost::make_paper_plan(j, best->at).strategies);
  }
}

}  // namespace

TEST_CASE("the search finds what the equations say, for any quantities") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases); ++seed) {
    CAPTURE(seed);
    test::random_source r(~seed);
    check(random_job(seed, 6, 8), r);
  }
}

TEST_CASE("the search finds what the equations say, for larger jobs") {
  for (std::uint64_t seed = 0; seed < test::scaled(200); ++seed) {
    CAPTURE(seed);
    test::random_source r(~seed);
    check(random_job(seed, 20, 24), r);
  }
}

TEST_CASE("the search finds what the equations say, for jobs with a trace") {
  for (std::uint64_t seed = 0; seed < test::scaled(cases / 10); ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    if (c.layout.chunks.empty() || c.layout.chunks.size() > 12) {
      continue;
    }
    test::random_source r(~seed);
    auto const rate = [&] { return bandwidth{1'000'000'000'000 * r.between(1, 40)}; };
    hw::machine const m{.host_to_device = rate(),
                        .device_to_host = rate(),
                        .copy_latency = {r.between(0, 100)},
                        .device_bandwidth = rate(),
                        .host_bandwidth = rate(),
                        .collective = rate()};
    auto const j = cost::make_paper_job(c.facts, c.layout, m, c.knobs.time, link::derated{});
    REQUIRE(j.has_value());
    check(*j, r);
  }
}

}  // namespace closed_form_test
