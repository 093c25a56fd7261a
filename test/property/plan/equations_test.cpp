// SPDX-License-Identifier: Apache-2.0
// The closed form against the paper's equations (2) to (11), written down once more as they are
// printed: in floating point, with chunks and operators counted from 1, and without the library's
// code for any of them.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_inputs.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_memory.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/paper_time.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/derated.hpp"
#include "test/property/plan/random_plans.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace equations_test {

namespace {

using namespace protrain;
using activation::strategy;

double real(picoseconds t) { return static_cast<double>(t.value); }
double real(bytes b) { return static_cast<double>(b.value); }
double real(cost::memory_delta d) { return static_cast<double>(d); }

/// What the equations take as given: the job's quantities, the plan's numbers and strategies, and
/// which stages swap.
struct paper {
  cost::paper_job const& j;
  cost::paper_plan const& p;

  int chunks() const { return static_cast<int>(j.chunks.size()); }
  int persist() const { return static_cast<int>(p.numbers.persist); }
  int buffer() const { return static_cast<int>(p.numbers.buffer); }
  cost::paper_chunk const& chunk(int i) const { return j.chunks[static_cast<std::size_t>(i - 1)]; }
  /// "Those use a reduced bandwidth": transfers of chunk i beside a stage that swaps, or not.
  cost::paper_transfers const& moves(int i, bool swaps) const {
    return swaps ? chunk(i).beside_swap : chunk(i).alone;
  }
  bool swaps_forward(int stage) const {
    return p.swap_forward[static_cast<std::size_t>(stage)] != 0;
  }
  bool swaps_backward(int stage) const {
    return p.swap_backward[static_cast<std::size_t>(stage)] != 0;
  }

  double comp_forward(int i) const { return i == 0 ? 0 : real(chunk(i).forward); }
  double comp_backward(int i) const { return i > chunks() ? 0 : real(chunk(i).backward); }
  /// Forward time of the checkpointed blocks inside chunk i.
  double recomp(int i) const {
    double sum = 0;
    for (std::size_t b = 0; b < j.blocks.size(); ++b) {
      bool const inside = static_cast<int>(j.blocks[b].chunk) + 1 == i;
      sum += inside && p.strategies[b] == strategy::checkpoint ? real(j.blocks[b].forward) : 0;
    }
    return sum;
  }

  double prefetch_forward(int i) const {  // (4)
    if (i <= persist() || i > chunks()) {
      return 0;
    }
    auto const& t = moves(i, swaps_forward(i - 1));
    return real(t.gather) + real(t.upload);
  }
  double forward() const {  // (3)
    double sum = 0;
    for (int i = 1; i <= chunks() + 1; ++i) {
      sum += std::max(comp_forward(i - 1), prefetch_forward(i));
    }
    return sum;
  }
  double reduce_offload(int i) const {  // (6)
    if (i < 1 || i > chunks()) {
      return 0;
    }
    auto const& t = moves(i, swaps_backward(j.drain ? i - 1 : i));
    return i <= persist() ? real(t.reduce) : real(t.reduce) + real(t.offload);
  }
  double prefetch_backward(int i) const {  // (7)
    if (i <= persist() || i > chunks() - buffer()) {
      return 0;
    }
    auto const& t = moves(i, swaps_backward(i + 1));
    return real(t.gather) + real(t.upload);
  }
  double backward() const {  // (5), and with a drain its inferred form
    double sum = j.drain ? reduce_offload(1) : 0;
    for (int i = 1; i <= chunks() + 1; ++i) {
      sum += std::max(comp_backward(i) + recomp(i),
                      prefetch_backward(i - 1) + reduce_offload(j.drain ? i + 1 : i));
    }
    return sum;
  }
  double iteration() const {  // (2), for several micro-batches and updates that wait as inferred
    double gpu = 0;
    double cpu = 0;
    for (int i = 1; i <= chunks(); ++i) {
      (i <= persist() ? gpu : cpu) +=
          real(i <= persist() ? chunk(i).gpu_optimizer : chunk(i).cpu_optimizer);
    }
    double const before = j.micro_batches * forward() + (j.micro_batches - 1) * backward();
    return j.waits ? before + backward() + std::max(gpu, cpu)
                   : before + std::max(backward() + gpu, cpu);
  }

  double peak() const {
    double current = real(j.forward_end);  // (8)
    for (auto const& o : j.operators) {
      current += real(o.activations);
    }
    for (std::size_t b = 0; b < j.blocks.size(); ++b) {
      current -= p.strategies[b] == strategy::swap         ? real(j.blocks[b].swap_saving)
                 : p.strategies[b] == strategy::checkpoint ? real(j.blocks[b].checkpoint_saving)
                                                           : 0;
    }
    double most = current;
    for (auto const& o : j.operators) {
      strategy const how = p.strategies[o.block];
      bool const rebuilt = o.first && how == strategy::checkpoint;
      most = std::max({most,  // (10)
                       current + real(o.peak_prior),
                       current + real(o.current_prior) + real(o.peak_own) +
                           (rebuilt ? real(j.blocks[o.block].checkpoint_saving) : 0)});
      current += real(o.current_prior) + real(o.current_own);  // (9)
      current -= how == strategy::keep ? real(o.activations) : 0;
    }
    double chunk_bytes = real(j.buffer) * buffer();  // (11)
    double slot = 0;
    for (int i = 1; i <= chunks(); ++i) {
      chunk_bytes += i <= persist() ? real(chunk(i).persistent) : 0;
      slot = i > persist() ? std::max(slot, real(chunk(i).own_slot)) : slot;
    }
    return (most + chunk_bytes + slot) * j.alpha / 1000;
  }
};

bool equal(picoseconds ours, double theirs) {
  return std::abs(real(ours) - theirs) <= 1e-12 * std::max(1.0, theirs);
}

hw::machine swapping_machine(test::random_source& r) {
  auto m = test::random_machine(r);
  m.concurrent.both_ways = {{1'000'000'000'000 * r.between(1, 40)},
                            {1'000'000'000'000 * r.between(1, 40)}};
  return m;
}

/// Facts of a random trace, read either way where the paper's print leaves two.
cost::paper_job random_job(test::random_source& r, std::uint64_t seed) {
  test::random_case c = test::make_case(seed);
  while (c.layout.chunks.empty()) {
    c = test::make_case(seed += 100'000);
  }
  auto j =
      cost::make_paper_job(c.facts, c.layout, swapping_machine(r), c.knobs.time, link::derated{});
  REQUIRE(j.has_value());
  j->drain = r.chance(50);
  j->interval = r.between32(1, 4);
  j->alpha = r.between32(1000, 1300);
  return *j;
}

}  // namespace

TEST_CASE("times and memory are the paper's, equation by equation, on random traces") {
  std::uint64_t swapping = 0;
  for (std::uint64_t seed = 0; seed < test::scaled(2000); ++seed) {
    CAPTURE(seed);
    test::random_source r(~seed);
    cost::paper_job const j = random_job(r, seed);
    auto const chunks = static_cast<std::uint32_t>(j.chunks.size());
    auto const blocks = static_cast<std::uint32_t>(j.blocks.size());
    for (int k = 0; k < 4; ++k) {
      std::uint32_t const persist = r.between32(0, chunks);
      cost::paper_numbers const n{.persist = persist,
                                  .buffer = r.between32(0, chunks - persist),
                                  .swap = r.between32(0, blocks),
                                  .checkpoint = r.between32(0, blocks)};
      cost::paper_plan const p = cost::make_paper_plan(j, n);
      paper const same{j, p};
      for (int i = 0; i <= same.chunks() + 1; ++i) {
        auto const at = static_cast<std::size_t>(i);
        REQUIRE(equal(cost::reduce_offload(j, p, at), same.reduce_offload(i)));
        if (i > 0) {
          REQUIRE(equal(cost::prefetch_forward(j, p, at), same.prefetch_forward(i)));
        }
        if (i <= same.chunks()) {
          REQUIRE(equal(cost::prefetch_backward(j, p, at), same.prefetch_backward(i)));
        }
      }
      REQUIRE(equal(cost::forward_time(j, p), same.forward()));
      REQUIRE(equal(cost::backward_time(j, p), same.backward()));
      REQUIRE(equal(cost::iteration_time(j, p), same.iteration()));
      // Whole bytes, rounded up.
      double const peak = same.peak();
      REQUIRE(real(cost::peak_memory(j, p)) >= peak * (1 - 1e-12));
      REQUIRE(real(cost::peak_memory(j, p)) < peak * (1 + 1e-12) + 1);
      for (std::uint8_t const s : p.swap_backward) {
        swapping += s;
      }
    }
  }
  CHECK(swapping > 0);
}

TEST_CASE("what the equations take from a trace: the compute of all blocks, each in one chunk") {
  for (std::uint64_t seed = 0; seed < test::scaled(500); ++seed) {
    CAPTURE(seed);
    test::random_source r(~seed);
    test::random_case const c = test::make_case(seed);
    if (c.layout.chunks.empty()) {
      continue;
    }
    auto const j =
        cost::make_paper_job(c.facts, c.layout, swapping_machine(r), c.knobs.time, link::derated{});
    REQUIRE(j.has_value());
    double forward = 0;
    double backward = 0;
    for (cost::paper_chunk const& each : j->chunks) {
      forward += real(each.forward);
      backward += real(each.backward);
    }
    double forward_of_blocks = 0;
    double backward_of_blocks = 0;
    for (std::size_t b = 0; b < c.facts.blocks.size(); ++b) {
      trace::block_shape const& s = c.facts.shape(make_id<block_id>(b));
      forward_of_blocks += real(s.forward);
      backward_of_blocks += real(s.backward);
    }
    REQUIRE(forward == forward_of_blocks);
    REQUIRE(backward == backward_of_blocks);
  }
}

}  // namespace equations_test
