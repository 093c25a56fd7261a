// SPDX-License-Identifier: Apache-2.0
// Memory reports of programs made by hand.

#include "protrain/schedule/memory.hpp"

#include <doctest/doctest.h>

#include <numeric>

namespace memory_test {

namespace {

using namespace protrain;
using schedule::allocation;

std::uint64_t at(std::array<std::uint64_t, category_count> const& by, category c) {
  return by[static_cast<std::size_t>(c)];
}

allocation memory(category what,
                  std::uint64_t offset,
                  std::uint64_t size,
                  std::uint32_t begin,
                  std::uint32_t end) {
  return {.what = what, .offset = offset, .bytes = size, .begin = begin, .end = end};
}

TEST_CASE("nothing allocated: all zero") {
  CHECK(schedule::memory_of({}, space::device) == schedule::memory_report{});
  schedule::program p;
  p.allocations = {memory(category::batch, 0, 100, 0, 1)};
  CHECK(schedule::memory_of(p, space::host) == schedule::memory_report{});
}

TEST_CASE("the peak is reached first where its last byte is live, holes are fragmentation") {
  schedule::program p;
  p.allocations = {memory(category::parameters, 0, 1000, 0, 9),
                   memory(category::scratch, 1024, 300, 1, 3),
                   memory(category::activations, 1536, 512, 2, 9),
                   memory(category::boundaries, 1024, 10, 3, 5),
                   memory(category::gradients, 1280, 10, 4, 5)};
  auto const r = schedule::memory_of(p, space::device);
  CHECK(r.peak == 2048);
  CHECK(r.position == 2);
  CHECK(at(r.at_peak, category::parameters) == 1000);
  CHECK(at(r.at_peak, category::scratch) == 300);
  CHECK(at(r.at_peak, category::activations) == 512);
  CHECK(at(r.at_peak, category::boundaries) == 0);
  CHECK(at(r.at_peak, category::padding) == 24 + 212);
  CHECK(at(r.at_peak, category::fragmentation) == 0);
  CHECK(std::accumulate(r.at_peak.begin(), r.at_peak.end(), std::uint64_t{0}) == r.peak);
  CHECK(at(r.maximum, category::boundaries) == 10);
  CHECK(at(r.maximum, category::padding) == 24 + 246 + 246);
  CHECK(at(r.maximum, category::fragmentation) == 512);  // from position 5
}

TEST_CASE("what ends at a position makes room for what begins there") {
  schedule::program p;
  p.allocations = {memory(category::scratch, 0, 256, 0, 1),
                   memory(category::scratch, 0, 256, 1, 2)};
  auto const r = schedule::memory_of(p, space::device);
  CHECK(r.peak == 256);
  CHECK(r.position == 0);
  CHECK(at(r.maximum, category::scratch) == 256);
}

}  // namespace

}  // namespace memory_test
