// SPDX-License-Identifier: Apache-2.0
// How systems of this kind fail in the field on several ranks, each as an input and the right
// answer.

#include "protrain/chunk/layout.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/schedule/memory.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace rank_pitfalls_test {

namespace {

using namespace protrain;
using test::constant_batch;

struct rank_gradients {
  runtime::step_result result{};
  std::vector<std::vector<float>> gradients{};
  std::string memory{};
};

/// The gradient of every element after one step as each rank reads it. `g` is by rank and
/// micro-batch.
std::vector<rank_gradients> gradients_over(test::subject const& s,
                                           test::placement const& p,
                                           std::vector<std::vector<float>> const& g) {
  std::vector<rank_gradients> out(g.size());
  auto const parts = test::parts_of(s, p);
  comm::thread_group group(static_cast<std::uint32_t>(g.size()), std::chrono::seconds(30));
  test::on_ranks(group.size(), [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    device::serial_device d(
        {.order = device::run_policy::adversarial, .seed = 5, .check_writes = true});
    runtime::engine engine(d, mine, s.table, parts, test::descent{});
    engine.initialise(s.load);
    out[rank].result = engine.step(constant_batch(g[rank]), {.learning_rate = 1}).get();
    for (std::size_t i = 0; i < s.table.parameters.size(); ++i) {
      out[rank].gradients.push_back(engine.read(make_id<parameter_id>(i)));
      for (float& each : out[rank].gradients.back()) {
        each = -each;
      }
    }
    out[rank].memory = test::memory_difference(engine);
  });
  return out;
}

void check_every_rank(std::vector<rank_gradients> const& seen, float value) {
  for (rank_gradients const& rank : seen) {
    CHECK(rank.memory == "");
    for (auto const& tensor : rank.gradients) {
      for (float const g : tensor) {
        REQUIRE(g == value);
      }
    }
  }
}

model::job job_over(std::uint64_t ranks, dtype type, std::uint64_t accumulate = 1, float clip = 0) {
  model::job job = test::job_of(type, accumulate, clip);
  job.world = ranks;
  return job;
}

/// The placements of one rank, and each with every update left to the next step.
std::vector<test::placement> placements() {
  std::vector<test::placement> out = test::placements();
  for (test::placement p : test::placements()) {
    p.time = update::timing::before_next_use;
    p.defer = 99;
    out.push_back(p);
  }
  return out;
}

TEST_CASE("tied parameter with uneven shards: [7, 4] over three ranks, and others") {
  using shape = std::vector<std::uint64_t>;
  for (auto const& [extents, ranks] :
       {std::pair<shape, std::uint64_t>{{7, 4}, 3}, {{1, 1}, 3}, {{129, 3}, 2}, {{5, 101}, 5}}) {
    for (std::uint64_t const accumulate : {1U, 2U}) {
      for (dtype const type : {dtype::f32, dtype::bf16}) {
        test::subject const s = test::constant_model(job_over(ranks, type, accumulate),
                                                     {{"w", {extents[0], extents[1]}}},
                                                     {{"u", {extents[0], extents[1]}, true, "w"}},
                                                     {{"v", {extents[0], extents[1]}, true, "w"}});
        REQUIRE(s.table.parameters.size() == 1);
        std::vector<std::vector<float>> const ones(ranks, std::vector<float>(accumulate, 1.0F));
        auto const uses = static_cast<float>(3 * accumulate * ranks);
        auto const n = static_cast<double>(extents[0] * extents[1]);
        for (test::placement const& p : placements()) {
          CAPTURE(ranks);
          CAPTURE(n);
          auto const seen = gradients_over(s, p, ones);
          check_every_rank(seen, uses);
          for (rank_gradients const& rank : seen) {
            CHECK(rank.gradients[0].size() == extents[0] * extents[1]);
            CHECK(rank.result.grad_norm == static_cast<float>(std::sqrt(n) * uses));
          }
        }
      }
    }
  }
}

TEST_CASE("zero-size parameters: on several ranks") {
  std::vector<std::vector<std::uint64_t>> const sizes = {
      {8, 0, 24}, {16, 4, 0}, {0, 0, 5}, {0, 0, 0}};
  for (auto const& n : sizes) {
    for (std::uint64_t const ranks : {2U, 3U}) {
      for (float const clip : {0.0F, 1.0F}) {
        auto const sum = static_cast<double>(n[0] + n[1] + n[2]);
        test::subject const s = test::constant_model(job_over(ranks, dtype::f32, 2, clip),
                                                     {{"a", {n[0]}}},
                                                     {{"b", {n[1]}}},
                                                     {{"c", {n[2]}}});
        for (test::placement const& p : placements()) {
          std::vector<std::vector<float>> const ones(ranks, {1, 1});
          for (rank_gradients const& seen : gradients_over(s, p, ones)) {
            auto const g = 2.0 * static_cast<double>(ranks);
            CHECK(seen.memory == "");
            CHECK(seen.result.grad_norm == static_cast<float>(std::sqrt(g * g * sum)));
            CHECK(seen.gradients[0].size() == n[0]);
            CHECK(seen.gradients[2].size() == n[2]);
          }
        }
      }
    }
  }
}

TEST_CASE("chunk not divisible by ranks: it is padded, and padding counts nowhere") {
  for (std::uint64_t const ranks : {2U, 3U, 5U, 6U, 7U}) {
    CAPTURE(ranks);
    std::uint64_t const n = 128 * 40 + 17;
    test::subject const s = test::constant_model(
        job_over(ranks, dtype::bf16, 1, 1.0F), {{"a", {n}}}, {{"b", {10, 30}}}, {{"c", {1000}}});
    for (std::uint64_t const capacity : {1U, 2000U, 20'000U}) {
      test::placement const p{.persistent = {0, 1}, .capacity = capacity};
      chunk::layout const l = test::plan(s, p).layout;
      for (chunk::chunk const& c : l.chunks) {
        std::uint64_t used = 0;
        for (chunk::placed_tensor const& t : c.tensors) {
          used += t.elements;
        }
        CHECK(c.elements % (128 * ranks) == 0);
        CHECK(c.elements >= used);
        CHECK(c.elements < used + 128 * (ranks + c.tensors.size()));
      }
      std::vector<std::vector<float>> const ones(ranks, {1});
      auto const whole = static_cast<double>(ranks) * std::sqrt(static_cast<double>(n + 1300));
      for (rank_gradients const& seen : gradients_over(s, p, ones)) {
        CHECK(seen.memory == "");
        CHECK(seen.result.grad_norm == static_cast<float>(whole));
        CHECK(seen.gradients[0].size() == n);
        CHECK(seen.gradients[0].front() == seen.gradients[0].back());
        CHECK(seen.gradients[0].back() == seen.gradients[2].back());
        CHECK(static_cast<double>(seen.gradients[1][299]) ==
              doctest::Approx(static_cast<double>(ranks) / whole).epsilon(1e-6));
      }
    }
  }
}

TEST_CASE("clipping with some shards on the host: two chunks here, one there, one frozen") {
  for (std::uint64_t const ranks : {2U, 3U}) {
    test::subject const s = test::constant_model(job_over(ranks, dtype::f32, 1, 1.0F),
                                                 {{"a", {1000}}, {"frozen", {500}, false}},
                                                 {{"b", {777}}},
                                                 {{"c", {223}}});
    std::vector<std::vector<float>> g;
    float sum = 0;
    for (std::uint64_t rank = 0; rank < ranks; ++rank) {
      g.push_back({static_cast<float>(1 + 2 * rank)});
      sum += g.back().front();
    }
    auto const norm = static_cast<float>(std::sqrt(2000.0) * static_cast<double>(sum));
    // Which chunks stay on the device, in every combination.
    for (unsigned stay = 0; stay < 16; ++stay) {
      test::placement p{.persistent = {}};
      for (unsigned c = 0; c < 4; ++c) {
        p.persistent.push_back(static_cast<std::uint8_t>((stay >> c) & 1U));
      }
      CAPTURE(ranks);
      CAPTURE(stay);
      auto const seen = gradients_over(s, p, g);
      for (rank_gradients const& rank : seen) {
        CHECK(rank.result.grad_norm == norm);
        CHECK(rank.result.grad_norm_clipped == seen[0].result.grad_norm_clipped);
        CHECK(rank.result.grad_norm_clipped == doctest::Approx(1).epsilon(1e-6));
        CHECK(rank.gradients == seen[0].gradients);
        CHECK(rank.gradients[0][999] == doctest::Approx(sum / norm).epsilon(1e-6));
        CHECK(rank.gradients[0][0] == rank.gradients[3][222]);
        for (float const frozen : rank.gradients[1]) {
          REQUIRE(frozen == 0);
        }
      }
    }
  }
}

TEST_CASE("one rank skips a block, or has zero tokens: the same collectives, and weight 0") {
  for (std::uint32_t idle = 0; idle < 2; ++idle) {
    test::subject const s = test::four_tensors(job_over(2, dtype::f32));
    for (test::placement const& p : placements()) {
      auto const parts = test::parts_of(s, p);
      std::vector<runtime::step_result> seen(4);
      std::vector<float> evaluated(2);
      comm::thread_group group(2, std::chrono::seconds(30));
      test::on_ranks(2, [&](std::uint32_t rank) {
        comm::threads mine(group, rank);
        device::serial_device d({.order = device::run_policy::random, .seed = 3});
        runtime::engine engine(d, mine, s.table, parts, test::descent{});
        engine.initialise(s.load);
        float const g = rank == idle ? 0.0F : 6.0F;
        runtime::batch data;
        data.add("g", &g, sizeof g).targets(rank == idle ? 0 : 4);
        seen[rank] = engine.step(data, {.learning_rate = 1}).get();
        evaluated[rank] = engine.evaluate(data);
        float const zero = 0;
        runtime::batch nothing;
        nothing.add("g", &zero, sizeof zero).targets(0);
        seen[2 + rank] = engine.step(nothing, {.learning_rate = 1}).get();
      });
      for (std::uint32_t rank = 0; rank < 2; ++rank) {
        CHECK(seen[rank].loss == 1.5F);
        CHECK(seen[rank].grad_norm == static_cast<float>(6 * std::sqrt(1593.0)));
        CHECK(evaluated[rank] == 1.5F);
        CHECK(seen[2 + rank].loss == 0);
        CHECK(seen[2 + rank].grad_norm == 0);
        CHECK(seen[2 + rank].finite);
      }
    }
  }
}

TEST_CASE(
    "one rank skips a block, or has zero tokens: it fails, the other throws in time and names it") {
  test::subject const good = test::four_tensors(job_over(2, dtype::f32));
  for (std::uint32_t failing = 0; failing < 2; ++failing) {
    for (std::size_t block = 0; block < 3; ++block) {
      test::subject bad = good;
      test::trap trap;
      test::set_trap(bad, block, true, trap);
      trap.fail_at = 1;
      auto const parts = test::parts_of(good, {.persistent = {0}});
      std::array<int, 2> named{-1, -1};
      std::array<std::string, 2> why;
      comm::thread_group group(2, std::chrono::seconds(20));
      auto const start = std::chrono::steady_clock::now();
      test::on_ranks(2, [&](std::uint32_t rank) {
        comm::threads mine(group, rank);
        device::host_device d;
        runtime::engine engine(d, mine, (rank == failing ? bad : good).table, parts);
        engine.initialise(good.load);
        try {
          (void)engine.step(constant_batch({1}), {}).get();
        } catch (comm::comm_error const& e) {
          named[rank] = static_cast<int>(e.rank());
          why[rank] = e.what();
        } catch (std::exception const& e) {
          why[rank] = e.what();
        }
      });
      CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
      CHECK(why[failing] == "the trap snapped");
      CHECK(named[1 - failing] == static_cast<int>(failing));
      CHECK(test::contains(why[1 - failing], "the trap snapped"));
    }
  }
}

TEST_CASE("accumulation lost under offload: on two ranks 1, 2, 4, 8 and 16, 32, 64, 128 are 255") {
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(job_over(2, type, 4));
    for (test::placement const& p : placements()) {
      auto const seen = gradients_over(s, p, {{1, 2, 4, 8}, {16, 32, 64, 128}});
      check_every_rank(seen, 255);
      for (rank_gradients const& rank : seen) {
        CHECK(rank.result.grad_norm == static_cast<float>(std::sqrt(255.0 * 255.0 * 1593)));
        CHECK(rank.result.loss == 255.0F / 8);
      }
    }
  }
}

TEST_CASE("accumulation lost under offload: on two ranks 1 and small ones, also in bf16") {
  // Ranks add up within a micro-batch and round once: 1 + 2^-9 isn't a bf16, 2^-9 + 2^-9 is.
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    test::subject const s = test::four_tensors(job_over(2, type, 3));
    for (test::placement const& p : placements()) {
      auto const seen = gradients_over(s, p, {{1, 0x1p-9F, 0x1p-9F}, {0, 0x1p-9F, 0x1p-9F}});
      check_every_rank(seen, 1 + 4 * 0x1p-9F);
      auto const lost = gradients_over(s, p, {{1, 0, 0}, {0x1p-10F, 0, 0}});
      check_every_rank(lost, type == dtype::f32 ? 1 + 0x1p-10F : 1.0F);
    }
  }
}

TEST_CASE("ranks add up from rank 0: the order decides bits with three") {
  // In fp32: (2^24 + 1) + -2^24 is 0 from the left, 1 from the right.
  for (test::placement const& p : placements()) {
    test::subject const s = test::four_tensors(job_over(3, dtype::f32));
    check_every_rank(gradients_over(s, p, {{0x1p24F}, {1}, {-0x1p24F}}), 0);
    check_every_rank(gradients_over(s, p, {{0x1p24F}, {-0x1p24F}, {1}}), 1);
    check_every_rank(gradients_over(s, p, {{1}, {0x1p24F}, {-0x1p24F}}), 0);
  }
}

TEST_CASE("state is sharded: W ranks hold one W-th each, padding aside") {
  for (std::uint64_t const ranks : {1U, 2U, 4U}) {
    test::subject const s = test::constant_model(job_over(ranks, dtype::bf16, 2),
                                                 {{"a", {1024 * 4}}},
                                                 {{"b", {512 * 4}}},
                                                 {{"frozen", {512 * 4}, false}});
    for (std::uint8_t const persistent : {std::uint8_t{0}, std::uint8_t{1}}) {
      auto const programs = test::plan(s, {.persistent = {persistent}, .capacity = 4096}).programs;
      CHECK(test::bytes_of(programs.front(), category::optimizer) == 10 * 1536 * 4 / ranks);
      std::uint64_t const values = test::bytes_of(programs.front(), category::parameters);
      CHECK(values == 2 * 2048 * 4 / (persistent != 0 ? 1 : ranks));
    }
  }
}

}  // namespace

}  // namespace rank_pitfalls_test
