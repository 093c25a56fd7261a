// SPDX-License-Identifier: Apache-2.0
// Ranks agree on one trace, and find out if they can't.

#include "protrain/profile/agree.hpp"

#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/profile/error.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/small_job.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace agree_test {

namespace {

using namespace protrain;

/// What each rank's `body(comm)` answers.
template <class Result, class Body>
std::vector<Result> on_threads(std::uint32_t ranks, Body const& body) {
  comm::thread_group group(ranks, std::chrono::seconds(30));
  std::vector<Result> out(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      comm::threads comm(group, r);
      out[r] = body(comm);
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  return out;
}

trace::trace measured(std::uint64_t rank) {
  trace::trace t = test::small_trace(3);
  t.from = trace::source::measured;
  t.outside = {rank == 1 ? 5000U : 700U};
  for (trace::block_shape& s : t.shapes) {
    s.forward = {100 + 7 * rank};
    s.backward = {300 - 100 * rank};
    s.levels.push_back({.name = "level", .rebuild = {10 * rank}});
    s.operators.push_back({.name = "op", .forward = {rank}, .backward = {2 * rank}});
  }
  return t;
}

}  // namespace

TEST_CASE("times are the mean of the ranks', memory outside the library the largest") {
  auto const all = on_threads<trace::trace>(
      3, [](comm::threads& c) { return profile::agree(c, measured(c.rank())); });
  trace::trace expected = measured(0);
  expected.outside = {5000};
  for (trace::block_shape& s : expected.shapes) {
    s.forward = {107};
    s.backward = {200};
    s.levels[0].rebuild = {10};
    s.operators[0].forward = {1};
    s.operators[0].backward = {2};
  }
  for (trace::trace const& t : all) {
    CHECK(t == expected);
  }
}

TEST_CASE("one rank agrees with itself") {
  comm::self alone;
  CHECK(profile::agree(alone, measured(1)) == measured(1));
}

TEST_CASE("a rank that profiled another job is found by every rank") {
  auto const all = on_threads<std::string>(3, [](comm::threads& c) -> std::string {
    trace::trace t = measured(c.rank());
    t.job.accumulate = c.rank() == 2 ? 4 : 1;
    try {
      static_cast<void>(profile::agree(c, t));
    } catch (profile::profile_error const& e) {
      return e.what();
    }
    return "";
  });
  for (std::string const& said : all) {
    CHECK(said == "the ranks have profiled different jobs: their traces' bytes differ");
  }
}

TEST_CASE("the largest of 64-bit numbers") {
  for (auto const& numbers : std::vector<std::vector<std::uint64_t>>{
           {0, 0, 0}, {1, 2, 3}, {~std::uint64_t{0}, 1, ~std::uint64_t{0}}, {6, 5, 4}, {8, 7, 8}}) {
    auto const found = on_threads<std::uint64_t>(
        3, [&](comm::threads& c) { return profile::detail::largest(c, numbers[c.rank()]); });
    CHECK(found == std::vector<std::uint64_t>(3, std::max({numbers[0], numbers[1], numbers[2]})));
  }
}

}  // namespace agree_test
