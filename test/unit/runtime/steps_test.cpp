// SPDX-License-Identifier: Apache-2.0
// From step to step, for every update time, on one rank and on several: stopping, looking between
// steps, results that are asked for late, gradients that aren't finite, and failures.

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace steps_test {

namespace {

using namespace protrain;
using test::contains;
using test::message_of;
using serial_engine = runtime::engine<device::serial_device, comm::threads>;

model::job tied_job(std::uint64_t ranks, std::uint64_t accumulate = 3) {
  model::job job = test::job_of(dtype::bf16, accumulate);
  job.micro_batch = 2;
  job.sequence = 3;
  job.world = ranks;
  job.dropout = 0.1F;
  return job;
}

test::subject model_over(model::job const& job) {
  test::mlp_config const config{.layers = 3, .tied = true};
  auto const load = test::uniform_values(0.4F);
  return job.type == dtype::f32 ? test::make_subject(test::make_mlp<float>(config), job, load)
                                : test::make_subject(test::make_mlp<bfloat16>(config), job, load);
}

test::placement placed(test::update_time const& at,
                       std::vector<std::uint8_t> persistent = {0, 0, 1, 0}) {
  return {.persistent = std::move(persistent),
          .counts = {.swap = 1, .checkpoint = 1, .interval = 2},
          .time = at.time,
          .defer = at.defer,
          .unroll = at.unroll};
}

auto part_of(std::uint32_t rank) {
  return [rank](test::global_data const& d) -> runtime::batch const& { return d.of(rank); };
}
runtime::batch const& all_of(test::global_data const& d) { return d.all(); }

/// Calls `body(engine, rank)` on every rank's thread; engines take turns by equal seeds.
template <class Body>
void on_engines(test::subject const& s, runtime::plan_parts const& parts, Body const& body) {
  auto const ranks = static_cast<std::uint32_t>(s.job().world);
  comm::thread_group group(ranks, std::chrono::seconds(30));
  test::on_ranks(ranks, [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    device::serial_device d(
        {.order = device::run_policy::adversarial, .seed = 11, .check_writes = true});
    serial_engine engine(d, mine, s.table, parts);
    body(engine, rank);
  });
}

/// What `script(trainer, part)` sees on every rank is what it sees in the plain loop.
template <class Script>
void check_against_plain(test::subject const& s,
                         runtime::plan_parts const& parts,
                         Script const& script) {
  test::plain_ranks plain(s.table, s.job());
  test::outcome const want = script(plain, all_of);
  std::vector<test::outcome> seen(s.job().world);
  on_engines(s, parts, [&](serial_engine& engine, std::uint32_t rank) {
    seen[rank] = script(engine, part_of(rank));
  });
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    CAPTURE(rank);
    CHECK(test::difference(seen[rank], want) == "");
  }
}

void add(test::outcome& out, runtime::step_result const& r) {
  out.losses.push_back(std::bit_cast<std::uint32_t>(r.loss));
  out.norms.push_back(std::bit_cast<std::uint32_t>(r.grad_norm));
  out.clipped.push_back(std::bit_cast<std::uint32_t>(r.grad_norm_clipped));
}

template <class Trainer, class Part>
auto start(Trainer& trainer, test::subject const& s, std::uint64_t step, Part const& part) {
  test::global_data const data(s, step);
  return trainer.step(part(data), {.learning_rate = 1e-2 / static_cast<double>(1 + step)});
}

// --- stopping and looking ------------------------------------------------------------------------

TEST_CASE("a run may stop after any step") {
  for (std::uint64_t const ranks : {1U, 3U}) {
    test::subject const s = model_over(tied_job(ranks));
    for (test::update_time const& at : test::update_times) {
      runtime::plan_parts const parts = test::parts_of(s, placed(at));
      for (std::uint64_t const steps : {0U, 1U, 2U, 5U}) {
        CAPTURE(ranks);
        CAPTURE(at.name);
        CAPTURE(steps);
        check_against_plain(s, parts, [&](auto& trainer, auto const& part) {
          return test::train_part(trainer, s, steps, test::between::nothing, part);
        });
      }
    }
  }
}

/// Looks at everything in every way, before the first step and after each.
template <class Trainer, class Part>
test::outcome look_around(Trainer& trainer, test::subject const& s, Part const& part) {
  constexpr bool plain = std::is_same_v<Trainer, test::plain_ranks>;
  test::outcome out;
  auto const evaluate = [&](std::uint64_t which, std::uint64_t count) {
    test::global_data const data(s, which, count);
    runtime::step_result r;
    if constexpr (plain) {
      r.loss = trainer.evaluate(part(data), count);
    } else {
      r.loss = trainer.evaluate(part(data));
    }
    add(out, r);
  };
  auto const flush = [&] {
    if constexpr (!plain) {
      trainer.flush();
    }
  };
  auto const visit = [&] {
    if constexpr (plain) {
      test::add_parameters(out, trainer, s);
    } else {
      trainer.visit([&](model::parameter const&, std::span<float const> values) {
        out.parameters.push_back(test::bits_of(values));
      });
    }
  };
  flush();
  trainer.initialise(s.load);
  evaluate(900, 1);
  visit();
  for (std::uint64_t step = 0; step < 6; ++step) {
    add(out, start(trainer, s, step, part));
    if (step % 3 == 0) {
      evaluate(901 + step, 2);
      evaluate(901 + step, 2);
    }
    if (step % 3 == 1) {
      out.parameters.push_back(test::bits_of(trainer.read({1})));
    }
    if (step == 3 || step == 4) {
      flush();
      flush();
      visit();
      evaluate(950, 3);
    }
  }
  visit();
  return out;
}

TEST_CASE("evaluating, reading, visiting and flushing between steps changes nothing") {
  for (std::uint64_t const ranks : {1U, 2U, 3U}) {
    test::subject const s = model_over(tied_job(ranks, 2));
    for (test::update_time const& at : test::update_times) {
      CAPTURE(ranks);
      CAPTURE(at.name);
      runtime::plan_parts const parts = test::parts_of(s, placed(at));
      bool const defers = at.defer > 0;
      bool const cut = at.unroll == 1;
      CHECK(parts.programs.size() == (defers ? 4U : 2U) + (cut ? 1U : 0U));
      check_against_plain(
          s, parts, [&](auto& trainer, auto const& part) { return look_around(trainer, s, part); });
    }
  }
}

// --- results that are asked for late -------------------------------------------------------------

TEST_CASE("a result may be asked for twice, late, or never") {
  for (std::uint64_t const ranks : {1U, 2U}) {
    test::subject const s = model_over(tied_job(ranks));
    test::outcome const want = test::train_plain_ranks(s, 6, test::between::nothing);
    for (test::update_time const& at : test::update_times) {
      CAPTURE(ranks);
      CAPTURE(at.name);
      std::vector<test::outcome> seen(ranks);
      std::vector<std::vector<std::uint64_t>> numbers(ranks);
      on_engines(s, test::parts_of(s, placed(at)), [&](serial_engine& engine, std::uint32_t rank) {
        auto const begin = [&](std::uint64_t step) {
          return start(engine, s, step, part_of(rank));
        };
        auto const got = [&](serial_engine::pending_step const& p) {
          runtime::step_result const r = p.get();
          numbers[rank].push_back(r.step);
          numbers[rank].push_back(p.step());
          return r;
        };
        engine.initialise(s.load);
        test::outcome& out = seen[rank];
        auto const one = begin(0);
        auto const two = begin(1);
        add(out, got(one));  // late: the next step runs
        auto const again = one.get();
        add(out, got(two));
        test::outcome twice;
        add(twice, again);
        add(twice, got(two));
        numbers[rank].push_back(
            twice.losses[0] == out.losses[0] && twice.norms[1] == out.norms[1] ? 1U : 0U);
        auto const three = begin(2);
        (void)begin(3);  // never asked for
        add(out, got(three));
        std::vector<std::uint32_t> const unseen = {0};
        out.losses.push_back(unseen[0]);
        out.norms.push_back(unseen[0]);
        out.clipped.push_back(unseen[0]);
        auto const five = begin(4);
        engine.flush();
        add(out, got(five));
        auto const six = begin(5);
        test::add_parameters(out, engine, s);
        add(out, got(six));
      });
      test::outcome without = want;
      without.losses[3] = without.norms[3] = without.clipped[3] = 0;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        CHECK(test::difference(seen[rank], without) == "");
        CHECK(numbers[rank] == std::vector<std::uint64_t>{1, 1, 2, 2, 2, 2, 1, 3, 3, 5, 5, 6, 6});
      }
    }
  }
}

TEST_CASE("a handle may be dropped with its engine, and a run may start anew while a step runs") {
  test::subject const s = model_over(tied_job(2));
  for (test::update_time const& at : test::update_times) {
    CAPTURE(at.name);
    runtime::plan_parts const parts = test::parts_of(s, placed(at));
    on_engines(s, parts, [&](serial_engine& engine, std::uint32_t rank) {
      engine.initialise(s.load);
      (void)start(engine, s, 0, part_of(rank));
      (void)start(engine, s, 1, part_of(rank));
    });
    std::vector<test::outcome> seen(2);
    on_engines(s, parts, [&](serial_engine& engine, std::uint32_t rank) {
      engine.initialise(s.load);
      (void)start(engine, s, 7, part_of(rank));
      (void)start(engine, s, 8, part_of(rank));
      seen[rank] = test::train_part(engine, s, 3, test::between::nothing, part_of(rank));
    });
    test::outcome const want = test::train_plain_ranks(s, 3, test::between::nothing);
    CHECK(test::difference(seen[0], want) == "");
    CHECK(test::difference(seen[1], want) == "");
  }
}

// --- gradients that aren't finite ----------------------------------------------------------------

/// Puts a NaN into the gradient of a block's first parameter, in one step.
struct poison {
  block::block_entry inner{};
  std::uint64_t backward_passes = 1;  ///< in the step
  std::uint64_t step = 0;
  mutable std::atomic<std::uint64_t> calls{0};
};

void set_poison(block::table& t, std::size_t block, poison& p) {
  block::block_entry& entry = t.blocks[block];
  p.inner = entry;
  entry.object = &p;
  entry.forward = [](void const* object, scope& at, tensor_view x, tensor_view y) {
    auto const& own = *static_cast<poison const*>(object);
    own.inner.forward(own.inner.object, at, x, y);
  };
  entry.backward =
      [](void const* object, scope& at, tensor_view x, tensor_view dy, tensor_view dx) {
        auto const& own = *static_cast<poison const*>(object);
        own.inner.backward(own.inner.object, at, x, dy, dx);
        if (own.calls++ == own.step * own.backward_passes) {
          at.run([&] {
            at.gradient({0}).as<bfloat16>()[0] =
                to_bfloat16(std::numeric_limits<float>::quiet_NaN());
          });
        }
      };
}

struct poisoned_run {
  std::vector<runtime::step_result> steps{};
  std::vector<std::vector<std::uint32_t>> before{};  ///< parameters before the poisoned step
  std::vector<std::vector<std::uint32_t>> after{};
  test::outcome rest{};
};

/// Five steps, the third with a NaN on rank `poisoned`; learning rates, data and keys as they come.
template <class Trainer, class Part>
poisoned_run run_poisoned(Trainer& trainer, test::subject const& s, bool look, Part const& part) {
  poisoned_run out;
  trainer.initialise(s.load);
  for (std::uint64_t step = 0; step < 5; ++step) {
    test::outcome state;
    if (look && (step == 2 || step == 3)) {
      test::add_parameters(state, trainer, s);
      (step == 2 ? out.before : out.after) = state.parameters;
    }
    out.steps.push_back(start(trainer, s, step, part));
    add(out.rest, out.steps.back());
  }
  test::add_parameters(out.rest, trainer, s);
  return out;
}

std::vector<poisoned_run> run_poisoned(test::subject const& s,
                                       test::update_time const& at,
                                       bool look,
                                       std::uint32_t poisoned) {
  std::vector<poisoned_run> out(s.job().world);
  auto const parts = test::parts_of(s, placed(at));
  comm::thread_group group(static_cast<std::uint32_t>(s.job().world), std::chrono::seconds(30));
  test::on_ranks(group.size(), [&](std::uint32_t rank) {
    poison p{.backward_passes = s.job().accumulate, .step = 2};
    block::table table = s.table;
    if (rank == poisoned) {
      set_poison(table, 0, p);
    }
    comm::threads mine(group, rank);
    device::serial_device d({.order = device::run_policy::adversarial, .seed = 5});
    serial_engine engine(d, mine, table, parts);
    out[rank] = run_poisoned(engine, s, look, part_of(rank));
  });
  return out;
}

/// The plain loop with the same NaN: ranks run one after the other in it.
poisoned_run run_poisoned_plain(test::subject const& s, std::uint32_t poisoned) {
  poison p{.backward_passes = s.job().world * s.job().accumulate, .step = 2};
  block::table table = s.table;
  set_poison(table, 0, p);
  test::plain_ranks plain(table, s.job());
  p.calls = std::uint64_t{0} - poisoned;  // not counting its dry run
  return run_poisoned(plain, s, true, all_of);
}

TEST_CASE("a step that isn't finite is skipped: no state changes, on no rank, and it is counted") {
  for (std::uint64_t const ranks : {1U, 3U}) {
    for (std::uint32_t poisoned = 0; poisoned < ranks; ++poisoned) {
      model::job job = tied_job(ranks);
      job.skip = true;
      test::subject const s = model_over(job);
      poisoned_run const want = run_poisoned_plain(s, poisoned);
      REQUIRE(want.steps[2].skipped);
      for (test::update_time const& at : test::update_times) {
        if (at.time == update::timing::during_backward) {
          continue;  // not for a job that needs the norm
        }
        for (bool const look : {false, true}) {
          CAPTURE(ranks);
          CAPTURE(poisoned);
          CAPTURE(at.name);
          CAPTURE(look);
          for (poisoned_run const& seen : run_poisoned(s, at, look, poisoned)) {
            for (std::size_t k = 0; k < 5; ++k) {
              CHECK(seen.steps[k].step == k + 1);
              CHECK(seen.steps[k].skipped == (k == 2));
              CHECK(seen.steps[k].finite == (k != 2));
            }
            CHECK(seen.before == seen.after);
            CHECK(std::isnan(seen.steps[2].grad_norm));
            CHECK(seen.rest.losses == want.rest.losses);
            CHECK(seen.rest.norms[4] == want.rest.norms[4]);
            CHECK(seen.rest.parameters == want.rest.parameters);
          }
        }
      }
    }
  }
}

TEST_CASE("a skipped step leaves what a step that never was would have left") {
  for (test::update_time const& at : test::update_times) {
    if (at.time == update::timing::during_backward) {
      continue;
    }
    CAPTURE(at.name);
    model::job job = test::job_of(dtype::bf16);
    job.skip = true;
    test::subject const s = test::four_tensors(job, test::uniform_values(0.5F));
    auto const parts = test::parts_of(s, placed(at));
    auto const train = [&](std::vector<float> const& gradients) {
      device::serial_device d;
      comm::self alone;
      runtime::engine engine(d, alone, s.table, parts);
      engine.initialise(s.load);
      std::uint64_t skipped = 0;
      for (float const g : gradients) {
        auto const r = engine.step(test::constant_batch({g}), {.learning_rate = 1e-2}).get();
        skipped += r.skipped ? 1U : 0U;
      }
      test::outcome out;
      test::add_parameters(out, engine, s);
      return std::pair(out, skipped);
    };
    float const nan = std::numeric_limits<float>::quiet_NaN();
    float const infinity = std::numeric_limits<float>::infinity();
    auto const with = train({nan, 1, 2, infinity, nan, 0.5F, -infinity});
    auto const without = train({1, 2, 0.5F});
    CHECK(with.second == 4);
    CHECK(without.second == 0);
    CHECK(with.first == without.first);
  }
}

TEST_CASE("a job that doesn't skip reports the step that isn't finite") {
  for (std::uint64_t const ranks : {1U, 3U}) {
    test::subject const s = model_over(tied_job(ranks));
    auto const poisoned = static_cast<std::uint32_t>(ranks - 1);
    poisoned_run const want = run_poisoned_plain(s, poisoned);
    for (test::update_time const& at : test::update_times) {
      CAPTURE(ranks);
      CAPTURE(at.name);
      for (poisoned_run const& seen : run_poisoned(s, at, true, poisoned)) {
        for (std::size_t k = 0; k < 5; ++k) {
          CHECK_FALSE(seen.steps[k].skipped);
          CHECK(seen.steps[k].step == k + 1);
          CHECK(seen.steps[k].finite == want.steps[k].finite);
        }
        CHECK(seen.steps[1].finite);
        CHECK_FALSE(seen.steps[2].finite);
        CHECK(seen.before == want.before);
        CHECK(seen.after == want.after);
        CHECK(std::isnan(std::bit_cast<float>(seen.after[0][0])));
        CHECK_FALSE(std::isnan(std::bit_cast<float>(seen.after[0][1])));
      }
    }
  }
}

}  // namespace

}  // namespace steps_test
