// SPDX-License-Identifier: Apache-2.0
// What one rank has of a host's threads and memory.

#include "protrain/hw/machine.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace machine_test {

namespace {

using namespace protrain;

constexpr hw::machine host(std::uint32_t devices, std::uint32_t threads, std::uint32_t usable = 0) {
  return {.devices = devices, .host_threads = threads, .usable_threads = usable};
}

constexpr std::uint64_t share(hw::machine const& m, std::uint32_t ranks) {
  return hw::share_of_rank(m, {1'600'000}, ranks).per_second;
}

TEST_CASE("ranks of a host: as many as there are devices, at least one") {
  static_assert(hw::local_ranks(host(8, 1), 1) == 1);
  static_assert(hw::local_ranks(host(8, 1), 8) == 8);
  static_assert(hw::local_ranks(host(8, 1), 64) == 8);
  static_assert(hw::local_ranks(host(1, 1), 3) == 1);
  static_assert(hw::local_ranks(host(0, 1), 0) == 1);
}

TEST_CASE("threads of a rank: max(1, usable / ranks)") {
  static_assert(hw::threads_of_rank(host(8, 16), 1) == 16);
  static_assert(hw::threads_of_rank(host(8, 16), 3) == 5);
  static_assert(hw::threads_of_rank(host(8, 16, 2), 8) == 1);
  static_assert(hw::threads_of_rank(host(8, 16, 99), 1) == 16);
  static_assert(hw::threads_of_rank(host(8, 0), 0) == 1);
}

TEST_CASE("a rank's share of the rate follows the threads that run") {
  static_assert(share(host(8, 16), 1) == 1'600'000);
  static_assert(share(host(8, 16), 4) == 400'000);
  static_assert(share(host(8, 16), 3) == 500'000);      // 5 of 16 threads each
  static_assert(share(host(8, 16, 2), 1) == 200'000);   // 2 of 16
  static_assert(share(host(8, 16, 2), 8) == 25'000);    // 2 of 16, for eight
  static_assert(share(host(8, 16, 99), 2) == 800'000);  // no more than there are
  static_assert(share(host(64, 4), 64) == 25'000);
  static_assert(share(host(1, 0), 0) == 1'600'000);
  // Rates of machines that work are positive.
  static_assert(hw::share_of_rank(host(1, 1000, 1), {1}, 1).per_second == 1);
  static_assert(hw::share_of_rank(host(1, 1000, 1), {0}, 1).per_second == 0);
}

}  // namespace

}  // namespace machine_test
