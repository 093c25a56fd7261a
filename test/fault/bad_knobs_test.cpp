// SPDX-License-Identifier: Apache-2.0
// Knobs that contradict the job or each other: compile refuses them, says why and names the number.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <functional>
#include <string_view>

namespace bad_knobs_test {

namespace {

using namespace protrain;

/// A case with three chunks at least, some of them in slots, whose job may update early.
test::random_case sound_case() {
  for (std::uint64_t seed = 0;; ++seed) {
    test::random_case c = test::make_case(seed);
    if (c.layout.chunks.size() >= 3 && !model::needs_norm(c.facts.job) &&
        schedule::fewest_buffers(c.layout, std::vector<std::uint8_t>(c.layout.chunks.size(), 0)) >
            0) {
      c.knobs.persistent.assign(c.layout.chunks.size(), 0);
      c.knobs.sites.assign(c.layout.chunks.size(), update::site::cpu);
      c.knobs.buffers = schedule::fewest_buffers(c.layout, c.knobs.persistent);
      c.knobs.time = update::timing::during_backward;
      return c;
    }
  }
}

/// The refusal of a sound case after `damage`.
error refusal(std::function<void(test::random_case&)> const& damage) {
  test::random_case c = sound_case();
  REQUIRE(schedule::compile(c.facts, c.layout, c.knobs).has_value());
  damage(c);
  auto const p = schedule::compile(c.facts, c.layout, c.knobs);
  REQUIRE_FALSE(p.has_value());
  return p.failure();
}

bool says(error const& e, std::string_view part) {
  return std::string_view(e.what).find(part) != std::string_view::npos;
}

TEST_CASE("too few buffers") {
  error const e = refusal([](test::random_case& c) { --c.knobs.buffers; });
  CHECK(e.code == errc::out_of_range);
  CHECK(says(e, "fewer buffers"));
  CHECK(e.number == sound_case().knobs.buffers - 1);
}

TEST_CASE("fewer than two gradient slots") {
  for (std::uint32_t const slots : {0U, 1U}) {
    error const e = refusal([&](test::random_case& c) { c.knobs.gradient_slots = slots; });
    CHECK(e.code == errc::out_of_range);
    CHECK(says(e, "two gradient slots"));
    CHECK(e.number == slots);
  }
}

TEST_CASE("updates during backward in a job that needs the norm") {
  error const clipped = refusal([](test::random_case& c) { c.facts.job.clip = 1; });
  CHECK(clipped.code == errc::not_allowed);
  CHECK(says(clipped, "norm"));
  error const skipping = refusal([](test::random_case& c) { c.facts.job.skip = true; });
  CHECK(skipping.code == errc::not_allowed);
  CHECK(says(skipping, "norm"));
}

TEST_CASE("an update site where the chunk doesn't live") {
  error const moved = refusal([](test::random_case& c) { c.knobs.sites[1] = update::site::gpu; });
  CHECK(moved.code == errc::not_allowed);
  CHECK(moved.number == 1);
  error const stays = refusal([](test::random_case& c) { c.knobs.persistent[2] = 1; });
  CHECK(stays.code == errc::not_allowed);
  CHECK(stays.number == 2);
}

TEST_CASE("one decision for each chunk and each block, no more, no fewer") {
  std::size_t const chunks = sound_case().layout.chunks.size();
  for (error const& e :
       {refusal([](test::random_case& c) { c.knobs.persistent.pop_back(); }),
        refusal([](test::random_case& c) { c.knobs.sites.push_back(update::site::cpu); })}) {
    CHECK(e.code == errc::invalid_argument);
    CHECK(e.number == chunks);
  }
  error const e = refusal(
      [](test::random_case& c) { c.knobs.strategies.push_back(activation::strategy::keep); });
  CHECK(e.code == errc::invalid_argument);
  CHECK(e.number == sound_case().facts.blocks.size());
}

TEST_CASE("jobs without samples, for other ranks, with mixed dtypes, in a wrong format") {
  CHECK(refusal([](test::random_case& c) { c.facts.job.accumulate = 0; }).code ==
        errc::invalid_argument);
  CHECK(refusal([](test::random_case& c) { c.facts.job.micro_batch = 0; }).code ==
        errc::invalid_argument);
  error const ranks = refusal([](test::random_case& c) { c.facts.job.world = 7; });
  CHECK(ranks.code == errc::invalid_argument);
  CHECK(says(ranks, "another number of ranks"));
  CHECK(refusal([](test::random_case& c) { c.facts.job.world = 0; }).code ==
        errc::invalid_argument);
  error const mixed =
      refusal([](test::random_case& c) { c.facts.parameters[1].type = dtype::f16; });
  CHECK(mixed.code == errc::not_allowed);
  CHECK(mixed.number == 1);
  error const format = refusal(
      [](test::random_case& c) { c.facts.job.state = model::state_format::separate_master; });
  CHECK(format.code == errc::not_allowed);
  CHECK(says(format, "state format"));
}

}  // namespace

}  // namespace bad_knobs_test
