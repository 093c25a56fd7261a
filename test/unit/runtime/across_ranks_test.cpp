// SPDX-License-Identifier: Apache-2.0
// What the number of ranks may change and what not: one global batch split over 1, 2 and 4 ranks,
// and norms whose tensors are cut by shards wherever the chunk size puts them.

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/gpt2_values.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace across_ranks_test {

namespace {

using namespace protrain;

std::vector<test::engine_run> train(test::subject const& s,
                                    test::placement const& p,
                                    std::uint64_t steps,
                                    std::uint64_t seed = 7) {
  return test::train_ranks(
      [&] {
        return std::make_unique<device::serial_device>(device::serial_options{
            .order = device::run_policy::adversarial, .seed = seed, .check_writes = true});
      },
      s,
      test::parts_of(s, p),
      steps,
      test::between::nothing);
}

model::job long_sequence_job(std::uint64_t ranks, std::uint64_t sequence) {
  model::job job = test::job_of(dtype::f32, 4 / ranks, 0.05F);
  job.micro_batch = 2;
  job.sequence = sequence;
  job.world = ranks;
  job.dropout = 0.1F;
  return job;
}

test::subject mlp_over(std::uint64_t ranks) {
  return test::make_subject(test::make_mlp<float>({.layers = 3, .tied = true}),
                            long_sequence_job(ranks, 3),
                            test::uniform_values(0.4F));
}

test::subject gpt2_over(std::uint64_t ranks) {
  model::gpt2_config const tiny{.layers = 2,
                                .hidden = 32,
                                .heads = 4,
                                .inner = 128,
                                .vocabulary = 256,
                                .positions = 32,
                                .dropout = 0.1};
  transformer::initial_values const values{.config = tiny, .seed = 5};
  return test::make_subject(
      transformer::make_gpt2<float>(tiny), long_sequence_job(ranks, 8), values);
}

test::placement const mixed_deferred{.persistent = {0, 1, 0},
                                     .counts = {.swap = 1, .checkpoint = 2, .interval = 2},
                                     .time = update::timing::before_next_use,
                                     .capacity = 2000,
                                     .defer = 2};

void check_close(std::vector<std::uint32_t> const& a, std::vector<std::uint32_t> const& b) {
  REQUIRE(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    auto const x = static_cast<double>(std::bit_cast<float>(a[i]));
    auto const y = static_cast<double>(std::bit_cast<float>(b[i]));
    CAPTURE(i);
    CHECK(std::abs(x - y) <= 1e-5 * std::abs(y));
  }
}

TEST_CASE("one global batch on 1, 2 and 4 ranks: losses agree within rounding") {
  for (auto const& make : {mlp_over, gpt2_over}) {
    auto const alone = train(make(1), mixed_deferred, 5);
    for (std::uint64_t const ranks : {2U, 4U}) {
      CAPTURE(ranks);
      auto const several = train(make(ranks), mixed_deferred, 5);
      for (test::engine_run const& r : several) {
        // The first loss depends on no sum over ranks.
        CHECK(r.bits.losses[0] == alone[0].bits.losses[0]);
        check_close(r.bits.losses, alone[0].bits.losses);
        check_close(r.bits.norms, alone[0].bits.norms);
        CHECK(r.bits.losses.front() != r.bits.losses.back());
      }
    }
  }
}

/// What a sample of the job saw: its batch word and the words that its key draws.
using sight = std::pair<std::int32_t, std::vector<std::uint32_t>>;

struct sights {
  std::mutex guard{};
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<sight>> by_step_and_block{};
};

/// Its loss is its mask; it writes down what it saw. `block` is 0 or 1.
auto watcher(std::uint64_t block, sights& seen) {
  auto const look = [block, &seen](scope& s) {
    random_key key = s.rng();
    for (std::uint64_t i = 0; i < s.samples(); ++i, ++key.sample) {
      random_stream const draws = make_stream(key);
      sight now{s.batch("word").as<std::int32_t const>()[i], {}};
      float kept = 0;
      for (std::uint64_t k = 0; k < 64; ++k) {
        float const u = draws.uniform(k);
        now.second.push_back(std::bit_cast<std::uint32_t>(u));
        kept += u < 0.1F ? 0.0F : 1.0F;
      }
      s.loss(i, kept);
      std::lock_guard const lock(seen.guard);
      seen.by_step_and_block[{key.step, block}].insert(std::move(now));
    }
  };
  return make_block(
      [block](block_builder& b) {
        b.batch("word", dtype::i32, {b.job().micro_batch});
        b.parameter(block == 0 ? "v" : "w", {300});
        if (block == 0) {
          b.output({4}, dtype::f32);
        } else {
          b.input({4}, dtype::f32);
        }
        b.reads_input(false);
      },
      [look](scope& s, tensor_view, tensor_view y) {
        s.run([&] {
          look(s);
          if (y) {
            std::ranges::fill(y.elements_as<float>(), 0.0F);
          }
        });
      },
      [](scope& s, tensor_view, tensor_view, tensor_view dx) {
        s.run([&] {
          std::ranges::fill(s.gradient({0}).elements_as<float>(), 1.0F);
          if (dx) {
            std::ranges::fill(dx.elements_as<float>(), 0.0F);
          }
        });
      });
}

TEST_CASE("every sample of the global batch meets its data and its masks, on however many ranks") {
  std::map<std::uint64_t, std::vector<std::uint32_t>> losses;
  std::map<std::uint64_t, std::map<std::pair<std::uint64_t, std::uint64_t>, std::set<sight>>> all;
  for (std::uint64_t const ranks : {1U, 2U, 4U}) {
    sights seen;
    test::subject const s = test::make_subject(stack{watcher(0, seen), watcher(1, seen)},
                                               long_sequence_job(ranks, 1),
                                               test::uniform_values(0.5F));
    seen.by_step_and_block.clear();  // of the dry run
    auto const runs = train(s, {.persistent = {0}, .counts = {.checkpoint = 9}}, 3);
    losses[ranks] = runs[0].bits.losses;
    all[ranks] = seen.by_step_and_block;
    for (test::engine_run const& r : runs) {
      CHECK(r.bits.losses == losses[1]);
    }
  }
  CHECK(all[1].size() == 6);  // three steps of two blocks
  for (auto const& [where, samples] : all[1]) {
    CHECK(samples.size() == 8);
  }
  CHECK(all[2] == all[1]);
  CHECK(all[4] == all[1]);
}

// --- norms ---------------------------------------------------------------------------------------

/// Gradients of random mantissas and exponents over 2^20, other ones for every batch word, tensor
/// and element.
class spread_block {
 public:
  spread_block(bool first, std::vector<std::uint64_t> sizes)
      : first_(first), sizes_(std::move(sizes)) {}

  void describe(block_builder& b) const {
    b.name(first_ ? "first" : "last");
    for (std::size_t i = 0; i < sizes_.size(); ++i) {
      b.parameter((first_ ? "f" : "l") + std::to_string(i), {sizes_[i]}, {.decay = i % 2 == 0});
    }
    b.batch("word", dtype::i32, {1});
    if (first_) {
      b.output({1}, dtype::f32);
    } else {
      b.input({1}, dtype::f32);
    }
    b.reads_input(false);
  }
  void forward(scope& s, tensor_view, tensor_view y) const {
    s.run([&] {
      if (first_) {
        *y.as<float>() = 0;
      } else {
        s.loss(0, static_cast<float>(word(s)));
      }
    });
  }
  void backward(scope& s, tensor_view, tensor_view, tensor_view dx) const {
    s.run([&] {
      if (!first_) {
        *dx.as<float>() = 0;
      }
      for (std::uint32_t i = 0; i < sizes_.size(); ++i) {
        fill(s.gradient({i}), 1000 * word(s) + 2 * i + (first_ ? 1U : 0U));
      }
    });
  }

 private:
  static std::uint64_t word(scope& s) {
    return static_cast<std::uint64_t>(*s.batch("word").as<std::int32_t const>());
  }
  static void fill(tensor_view const& to, std::uint64_t seed) {
    test::random_source dice(seed);
    for (std::uint64_t k = 0; k < to.elements(); ++k) {
      auto const mantissa = static_cast<float>(dice.between(1U << 23U, (1U << 24U) - 1));
      float const g = std::ldexp(dice.chance(50) ? mantissa : -mantissa,
                                 -24 - static_cast<int>(dice.between(0, 20)));
      if (to.type == dtype::bf16) {
        to.as<bfloat16>()[k] = to_bfloat16(g);
      } else {
        to.as<float>()[k] = g;
      }
    }
  }

  bool first_;
  std::vector<std::uint64_t> sizes_;
};

test::subject spread(dtype type, std::uint64_t ranks, std::uint64_t accumulate, float clip) {
  model::job job = test::job_of(type, accumulate, clip);
  job.world = ranks;
  return test::make_subject(
      stack{spread_block(true, {700, 3, 1500, 257}), spread_block(false, {130, 2049, 128, 1})},
      job,
      test::uniform_values(0.5F));
}

/// Where shards end inside tensors, as parameter and element.
std::set<std::pair<std::size_t, std::uint64_t>> cuts(chunk::layout const& l, std::uint64_t ranks) {
  std::set<std::pair<std::size_t, std::uint64_t>> out;
  for (chunk::chunk const& c : l.chunks) {
    for (chunk::placed_tensor const& t : c.tensors) {
      for (std::uint64_t rank = 1; rank < ranks; ++rank) {
        std::uint64_t const end = rank * (c.elements / ranks);
        if (t.offset < end && end < t.offset + t.elements) {
          out.emplace(t.parameter.index(), end - t.offset);
        }
      }
    }
  }
  return out;
}

TEST_CASE("norm and clipping have the oracle's bits wherever shards cut tensors") {
  std::vector<std::uint64_t> const capacities{1, 900, 1600, 2200, 2600, 3500, 5000};
  test::turns turn;
  for (dtype const type : {dtype::f32, dtype::bf16}) {
    for (std::uint64_t const ranks : {3U, 5U}) {
      for (std::uint64_t const accumulate : {1U, 2U}) {
        test::subject const s = spread(type, ranks, accumulate, 0.25F);
        test::outcome const want = test::train_plain_ranks(s, 3, test::between::nothing);
        CHECK(want.norms != want.clipped);
        for (std::uint32_t const norm : want.norms) {
          CHECK(std::bit_cast<float>(norm) > 1);
        }
        std::set<std::set<std::pair<std::size_t, std::uint64_t>>> distinct;
        for (std::uint64_t const capacity : capacities) {
          for (test::placement p : test::placements()) {
            CAPTURE(ranks);
            CAPTURE(accumulate);
            CAPTURE(capacity);
            p.capacity = capacity;
            distinct.insert(cuts(test::plan(s, p).layout, ranks));
            if (!turn.next()) {
              continue;
            }
            for (test::engine_run const& r : train(s, p, 3, capacity)) {
              CHECK(test::difference(r.bits, want) == "");
              CHECK(r.memory == "");
            }
          }
        }
        CHECK(distinct.size() >= 4);
      }
    }
  }
}

TEST_CASE("the norm of all ranks is that of their sum") {
  // Every rank's gradient is g of its micro-batch; 1,593 elements.
  model::job job = test::job_of(dtype::f32, 2, 1.0F);
  job.world = 3;
  test::subject const s = test::four_tensors(job);
  std::vector<runtime::step_result> results(3);
  comm::thread_group group(3);
  test::on_ranks(3, [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    device::serial_device d;
    runtime::engine engine(d, mine, s.table, test::parts_of(s, {.persistent = {1, 0}}));
    float const g = static_cast<float>(1U << rank);
    results[rank] = engine.step(test::constant_batch({g, 8 * g}), {.learning_rate = 1}).get();
  });
  for (runtime::step_result const& r : results) {
    CHECK(r.grad_norm == static_cast<float>(std::sqrt(63.0 * 63.0 * 1593)));
    CHECK(r.grad_norm_clipped == doctest::Approx(1).epsilon(1e-6));
    CHECK(r.loss == 63.0F / 6);
    CHECK(r.tokens == 6);
  }
}

}  // namespace

}  // namespace across_ranks_test
