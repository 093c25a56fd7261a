// SPDX-License-Identifier: Apache-2.0
// A crew of threads: every part once, on its own thread, in the right environment; failures reach
// the caller; nobody spins.

#include "protrain/device/workers.hpp"

#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif
#if defined(__linux__)
#include <unistd.h>
#endif

namespace workers_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one class
using device::workers;

TEST_CASE("workers: every part runs once, on a thread of its own that is always the same") {
  for (std::uint32_t const threads : {1U, 2U, 3U, 7U}) {
    workers crew(threads);
    CHECK(crew.size() == threads);
    std::vector<std::thread::id> first(threads);
    crew.run(threads, [&](std::uint32_t part) { first[part] = std::this_thread::get_id(); });
    CHECK(first[0] == std::this_thread::get_id());
    CHECK(std::set(first.begin(), first.end()).size() == threads);
    std::vector<std::uint64_t> runs(threads, 0);  // not atomic: a race would be one of the crew's
    std::uint64_t strangers = 0;
    for (int round = 0; round < 200; ++round) {
      std::atomic<std::uint64_t> moved{0};
      crew.run(threads, [&](std::uint32_t part) {
        ++runs[part];
        moved += first[part] != std::this_thread::get_id() ? 1U : 0U;
      });
      strangers += moved;
      REQUIRE(std::accumulate(runs.begin(), runs.end(), std::uint64_t{0}) ==
              threads * static_cast<std::uint64_t>(round + 1));
    }
    CHECK(runs == std::vector<std::uint64_t>(threads, 200));
    CHECK(strangers == 0);
  }
}

TEST_CASE("workers: fewer parts than threads, in any order of numbers, and none") {
  workers crew(5);
  for (std::uint32_t const parts : {5U, 1U, 3U, 0U, 2U, 5U, 4U}) {
    std::vector<int> runs(5, 0);
    crew.run(parts, [&](std::uint32_t part) { ++runs[part]; });
    for (std::uint32_t part = 0; part < 5; ++part) {
      CHECK(runs[part] == (part < parts ? 1 : 0));
    }
  }
}

TEST_CASE("workers: what the lowest failing part throws reaches the caller, and work goes on") {
  for (std::uint32_t const threads : {1U, 2U, 4U}) {
    workers crew(threads);
    for (std::uint32_t lowest = 0; lowest < threads; ++lowest) {
      std::atomic<std::uint32_t> finished{0};
      std::string said;
      try {
        crew.run(threads, [&](std::uint32_t part) {
          ++finished;
          if (part >= lowest) {
            throw std::runtime_error("part " + std::to_string(part));
          }
        });
      } catch (std::runtime_error const& e) {
        said = e.what();
      }
      CHECK(said == "part " + std::to_string(lowest));
      CHECK(finished == threads);  // nobody was left behind in the caller's memory
      std::atomic<std::uint32_t> again{0};
      crew.run(threads, [&](std::uint32_t) { ++again; });
      CHECK(again == threads);
    }
  }
}

TEST_CASE("workers: broken contracts") {
  test::throwing_contracts const contracts;
  CHECK_THROWS_AS(workers(0), test::contract_broken);
  workers crew(2);
  CHECK_THROWS_AS(crew.run(3, [](std::uint32_t) {}), test::contract_broken);
  for (std::uint32_t const nested : {0U, 1U}) {
    CHECK_THROWS_AS(crew.run(2,
                             [&](std::uint32_t part) {
                               if (part == nested) {
                                 crew.run(1, [](std::uint32_t) {});
                               }
                             }),
                    test::contract_broken);
  }
  int runs = 0;
  crew.run(1, [&](std::uint32_t) { ++runs; });
  CHECK(runs == 1);
}

#if defined(__SSE__)
TEST_CASE("workers: every part has the contract's floating-point environment") {
  unsigned const theirs = _mm_getcsr();
  _mm_setcsr(0x1F80U | 0x8000U | 0x0040U | 0x2000U);  // flush, zero, round down
  unsigned const changed = _mm_getcsr();
  std::vector<unsigned> seen(3, 0);
  unsigned after = 0;
  bool right = true;
  {
    workers crew(3);  // new threads begin with their maker's environment
    for (int round = 0; round < 2; ++round) {
      crew.run(3, [&](std::uint32_t part) {
        seen[part] = _mm_getcsr();
        _mm_setcsr(0x1F80U | 0x4000U);
      });
      after = _mm_getcsr();
      right = right && seen == std::vector<unsigned>(3, 0x1F80U);
    }
  }
  _mm_setcsr(theirs);
  CHECK(right);
  CHECK(after == changed);
}
#endif

TEST_CASE("workers: they come and go, with and without work") {
  for (std::uint32_t round = 0; round < 40; ++round) {
    workers crew(1 + round % 5);
    std::atomic<std::uint32_t> runs{0};
    if (round % 2 == 0) {
      crew.run(crew.size(), [&](std::uint32_t) { ++runs; });
      CHECK(runs == crew.size());
    }
  }
}

#if defined(__linux__)
/// Other threads of this process that run or could: the third field of their stat files.
std::size_t awake() {
  std::size_t count = 0;
  std::string const own = std::to_string(::gettid());
  for (auto const& thread : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream file(thread.path() / "stat");
    std::string line;
    std::getline(file, line);
    std::size_t const name = line.rfind(')');
    bool const other = thread.path().filename() != own;
    count += other && name != std::string::npos && line.substr(name, 3) == ") R" ? 1U : 0U;
  }
  return count;
}

TEST_CASE("workers: between runs they sleep") {
  workers crew(4);
  crew.run(4, [](std::uint32_t) {});
  // Who waits for work may look for it a moment longer.
  int tries = 0;
  while (awake() > 0 && ++tries < 500) {
    std::this_thread::sleep_for(std::chrono::milliseconds(4));
  }
  CHECK(tries < 500);
}
#endif

}  // namespace

}  // namespace workers_test
