// SPDX-License-Identifier: Apache-2.0
// Layouts: packing rules, padding, and the parameters that break planners: empty, oversize, tied,
// not divisible by the ranks, above 32 bits.

#include "protrain/chunk/layout.hpp"

#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <initializer_list>
#include <utility>
#include <vector>

namespace layout_test {

namespace {

using namespace protrain;

/// A trace of `blocks` blocks without tensors but these parameters.
trace::trace job_of(std::size_t blocks, std::vector<model::parameter> parameters) {
  trace::trace t;
  t.shapes = {{}};
  t.blocks.resize(blocks, shape_id{0});
  t.parameters = std::move(parameters);
  return t;
}

model::parameter tensor(std::uint64_t n, std::vector<block_id> uses, bool trainable = true) {
  return {.shape = {n}, .trainable = trainable, .uses = std::move(uses)};
}

std::vector<std::uint64_t> offsets(chunk::chunk const& c) {
  std::vector<std::uint64_t> out;
  for (auto const& t : c.tensors) {
    out.push_back(t.offset);
  }
  return out;
}

TEST_CASE("tensors start at granules, and the end is padded") {
  chunk::layout const l = chunk::make_layout(
      job_of(1, {tensor(1, {{0}}), tensor(129, {{0}}), tensor(128, {{0}})}), 1024);
  REQUIRE(l.chunks.size() == 1);
  CHECK(offsets(l.chunks[0]) == std::vector<std::uint64_t>{0, 128, 384});
  CHECK(l.chunks[0].elements == 512);
  CHECK(l.chunks[0].payload == 258);
  CHECK(l.where[1] == chunk::location{{0}, 128});
  CHECK(chunk::waste(l) == 1024 - 258);
}

TEST_CASE("a block stays together if it fits, and starts a new chunk otherwise") {
  trace::trace const t =
      job_of(2, {tensor(256, {{0}}), tensor(256, {{0}}), tensor(256, {{1}}), tensor(256, {{1}})});
  CHECK(chunk::make_layout(t, 1024).chunks.size() == 1);
  chunk::layout const l = chunk::make_layout(t, 896);
  REQUIRE(l.chunks.size() == 2);
  CHECK(l.chunks[0].elements == 512);
  CHECK(l.chunks_of[1] == std::vector<chunk_id>{{1}});
}

TEST_CASE("a block larger than a chunk is cut between tensors") {
  chunk::layout const l = chunk::make_layout(
      job_of(1, {tensor(256, {{0}}), tensor(256, {{0}}), tensor(256, {{0}})}), 512);
  REQUIRE(l.chunks.size() == 2);
  CHECK(l.chunks[0].tensors.size() == 2);
  CHECK(l.chunks_of[0] == std::vector<chunk_id>{{0}, {1}});
}

TEST_CASE("tensor larger than a chunk: it gets one of its own and inflates nothing") {
  for (auto const& [large, capacity] :
       {std::pair<std::uint64_t, std::uint64_t>{128'256ULL * 4096, 64ULL << 20U},
        {50'257ULL * 1600, 30'000'000},
        {1025, 1024},
        {1ULL << 40U, 1024}}) {
    CAPTURE(large);
    chunk::layout const l = chunk::make_layout(
        job_of(1, {tensor(100, {{0}}), tensor(large, {{0}}), tensor(100, {{0}})}), capacity);
    REQUIRE(l.chunks.size() == 2);
    CHECK(l.capacity == round_up(capacity, 128));
    CHECK(l.chunks[1].oversize);
    CHECK(l.chunks[1].payload == large);
    CHECK_FALSE(l.chunks[0].oversize);
    CHECK(l.chunks[0].tensors.size() == 2);
    CHECK(l.chunks[0].elements == 256);
  }
}

TEST_CASE("trainable and frozen tensors never share a chunk") {
  chunk::layout const l = chunk::make_layout(
      job_of(1, {tensor(8, {{0}}), tensor(8, {{0}}, false), tensor(8, {{0}})}), 4096);
  REQUIRE(l.chunks.size() == 2);
  CHECK(l.chunks[0].trainable);
  CHECK(l.chunks[0].tensors.size() == 2);
  CHECK_FALSE(l.chunks[1].trainable);
}

TEST_CASE("a tied tensor lies once, and all its users need its chunk") {
  chunk::layout const l = chunk::make_layout(
      job_of(3, {tensor(28, {{0}, {2}}), tensor(1000, {{1}}), tensor(1000, {{2}})}), 1024);
  REQUIRE(l.chunks.size() == 3);
  CHECK(l.chunks[0].blocks == std::vector<block_id>{{0}, {2}});
  CHECK(l.chunks_of[2] == std::vector<chunk_id>{{0}, {2}});
  CHECK(l.chunks[0].payload == 28);
}

TEST_CASE("empty tensors are legal, and nobody needs them") {
  for (auto const& sizes : std::initializer_list<std::vector<std::uint64_t>>{
           {8, 0, 24}, {16, 4, 0}, {0, 0, 5}, {0, 0, 0}}) {
    trace::trace t = job_of(3, {});
    std::uint64_t sum = 0;
    for (std::uint32_t b = 0; b < 3; ++b) {
      t.parameters.push_back(tensor(sizes[b], {{b}}));
      sum += sizes[b];
    }
    t.job.world = 2;
    chunk::layout const l = chunk::make_layout(t, 256);
    REQUIRE(l.chunks.size() == 1);
    CHECK(l.chunks[0].tensors.size() == 3);
    CHECK(l.chunks[0].payload == sum);
    for (std::size_t b = 0; b < 3; ++b) {
      CHECK(l.chunks_of[b].size() == (sizes[b] > 0 ? 1 : 0));
    }
  }
  CHECK(chunk::make_layout(job_of(1, {tensor(0, {{0}})}), 256).chunks[0].elements == 0);
  CHECK(chunk::make_layout(job_of(2, {}), 256).chunks.empty());
}

TEST_CASE("chunk not divisible by ranks: padded to a granule per rank, and padding is no payload") {
  for (std::uint64_t const world : {3U, 5U, 6U, 7U}) {
    trace::trace t = job_of(1, {tensor(40ULL << 20U, {{0}})});
    t.job.world = world;
    chunk::layout const l = chunk::make_layout(t, 40ULL << 20U);
    CHECK(l.capacity % (128 * world) == 0);
    CHECK(l.chunks[0].elements % (128 * world) == 0);
    CHECK(l.chunks[0].elements - l.chunks[0].payload < 128 * world);
    CHECK(l.chunks[0].payload == 40ULL << 20U);
    CHECK_FALSE(l.chunks[0].oversize);
    CHECK(chunk::waste(l) == l.capacity - (40ULL << 20U));
  }
}

TEST_CASE("32-bit counts: elements and offsets beyond them") {
  for (std::uint64_t const n : {250'880ULL * 14'336, 1ULL << 32U, 1ULL << 45U}) {
    chunk::layout const l =
        chunk::make_layout(job_of(2, {tensor(n, {{0}}), tensor(7, {{1}})}), 1ULL << 46U);
    CHECK(l.chunks[0].payload == n + 7);
    CHECK(l.where[1].offset == n);
  }
}

TEST_CASE("random layouts hold every tensor once, in order of first use") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    CAPTURE(seed);
    test::random_case const c = test::make_case(seed);
    std::vector<int> held(c.facts.parameters.size(), 0);
    for (std::size_t k = 0; k < c.layout.chunks.size(); ++k) {
      std::uint64_t end = 0;
      for (auto const& p : c.layout.chunks[k].tensors) {
        ++held[p.parameter.index()];
        CHECK(c.layout.where[p.parameter.index()] == chunk::location{{std::uint32_t(k)}, p.offset});
        CHECK(p.offset >= end);
        CHECK(p.offset % element_granule == 0);
        end = p.offset + p.elements;
      }
      CHECK(end <= c.layout.chunks[k].elements);
      CHECK((c.layout.chunks[k].oversize || c.layout.chunks[k].elements <= c.layout.capacity));
    }
    CHECK(std::count(held.begin(), held.end(), 1) == std::ptrdiff_t(held.size()));
    for (auto const& needed : c.layout.chunks_of) {
      CHECK(std::is_sorted(needed.begin(), needed.end()));
    }
  }
}

}  // namespace

}  // namespace layout_test
