// SPDX-License-Identifier: Apache-2.0
// How many buffers make sense.

#include "protrain/schedule/knobs.hpp"

#include "test/support/random_jobs.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

namespace knobs_test {

namespace {

using namespace protrain;

TEST_CASE("one buffer per block at least, one per chunk that moves at most") {
  auto const t = test::small_trace(5);
  auto const l = test::small_layout(t);
  CHECK(schedule::fewest_buffers(l, {0, 0, 0, 0, 0}) == 1);
  CHECK(schedule::most_buffers(l, {0, 0, 0, 0, 0}) == 5);
  CHECK(schedule::most_buffers(l, {1, 0, 1, 0, 0}) == 3);
  CHECK(schedule::fewest_buffers(l, {1, 1, 1, 1, 1}) == 0);
  CHECK(schedule::most_buffers(l, {1, 1, 1, 1, 1}) == 0);
}

TEST_CASE("oversize and empty chunks need no buffer") {
  trace::trace t = test::small_trace(2);
  t.parameters = {{.shape = {9000}, .uses = {{0}}},
                  {.shape = {0}, .trainable = false, .uses = {{0}}},
                  {.shape = {10}, .uses = {{0}}},
                  {.shape = {10}, .uses = {{1}}}};
  auto const l = chunk::make_layout(t, 512);
  REQUIRE(l.chunks.size() == 3);
  CHECK(schedule::fewest_buffers(l, {0, 0, 0}) == 1);
  CHECK(schedule::most_buffers(l, {0, 0, 0}) == 1);
}

TEST_CASE("the fewest never exceed the most") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    auto const c = test::make_case(seed);
    CHECK(schedule::fewest_buffers(c.layout, c.knobs.persistent) <=
          schedule::most_buffers(c.layout, c.knobs.persistent));
  }
}

}  // namespace

}  // namespace knobs_test
