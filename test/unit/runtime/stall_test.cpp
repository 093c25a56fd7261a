// SPDX-License-Identifier: Apache-2.0
// Steps that hang: a queue that stops, a block that never returns, a rank that never comes. Each
// becomes an error in time that says what hangs, and no rank hangs with it.

#include "protrain/runtime/stall.hpp"

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/support/device_double.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace stall_test {

namespace {

using namespace protrain;
using runtime::queue_doing;
using test::contains;
using test::message_of;

constexpr double patience = 0.2;

test::subject mlp(std::uint64_t ranks = 1) {
  model::job job = test::job_of(dtype::bf16, 2, 0.05F);
  job.micro_batch = 2;
  job.sequence = 2;
  job.world = ranks;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 2}), job, test::uniform_values(0.4F));
}

runtime::plan_parts parts_of(test::subject const& s) {
  return test::parts_of(
      s, {.persistent = {0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1, .interval = 2}});
}

/// Into `to`, the first one.
runtime::stall_listener keep(std::optional<runtime::stall>& to) {
  return {&to, [](void* into, runtime::stall const& s) {
            auto& kept = *static_cast<std::optional<runtime::stall>*>(into);
            kept = kept ? kept : s;
          }};
}

double since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

using stopping_engine = runtime::engine<test::stopping_device>;

/// Stops at the n-th instruction of the second step, and checks what is said about it.
void stop_at(test::subject const& s, runtime::plan_parts const& parts, std::uint32_t n) {
  schedule::program const& p = parts.programs.front();
  schedule::instruction const& held = p.instructions[n];
  test::stopping_device d;
  comm::self alone;
  std::optional<runtime::stall> seen;
  stopping_engine engine(
      d, alone, s.table, parts, {}, {.stall_after = patience, .on_stall = keep(seen)});
  engine.initialise(s.load);
  test::step_data const data(s, 0);
  (void)engine.step(data.get(), {}).get();
  d.stop(n + 1);
  auto const start = std::chrono::steady_clock::now();
  bool thrown = false;
  try {
    (void)engine.step(data.get(), {}).get();
  } catch (runtime::stall_error const& e) {
    thrown = true;
    CHECK(contains(e.what(), "rank 0: no queue got on for "));
    CHECK(contains(e.what(),
                   "queue " + std::string(name_of(held.queue)) + " stands before " +
                       std::string(schedule::print(held, s.facts).view()) + " (instruction " +
                       std::to_string(n) + " of step)"));
    CHECK(e.rank() == 0);
    CHECK(e.chunk() == held.chunk);
  }
  CHECK(thrown);
  CHECK(since(start) >= patience);
  CHECK(since(start) < 20);
  REQUIRE(seen.has_value());
  for (runtime::queue_state const& q : seen->queues) {
    CAPTURE(name_of(q.queue));
    CHECK(q.doing != queue_doing::runs);
    CHECK((q.doing == queue_doing::stands) == (q.queue == held.queue));
    CHECK((q.doing == queue_doing::waits) == !q.waits_for.empty());
    if (q.doing != queue_doing::nothing) {
      CHECK(p.instructions[q.head.index] == q.head.what);
      CHECK(q.head.what.queue == q.queue);
      CHECK(q.seconds >= patience);
    }
    for (runtime::placed_instruction const& w : q.waits_for) {
      CHECK(w.index >= n);
    }
  }
  CHECK(engine.hangs());
  CHECK(contains(message_of([&] { engine.flush(); }), "initialise it again"));
  CHECK(contains(message_of([&] { engine.initialise(s.load); }), "no queue got on"));
  d.go_on();
  CHECK(message_of([&] { engine.initialise(s.load); }) == "");
  CHECK_FALSE(engine.hangs());
  CHECK(test::difference(test::train(engine, s, 2), test::train_plain(s, 2)) == "");
  CHECK(test::memory_difference(engine) == "");
}

TEST_CASE("a queue that stops: the dump says at which instruction, and who waits for it") {
  test::subject const s = mlp();
  runtime::plan_parts const parts = parts_of(s);
  std::array<bool, queue_count> tried{};
  for (std::uint32_t n = 0; n < parts.programs.front().instructions.size(); ++n) {
    auto const q = static_cast<std::size_t>(parts.programs.front().instructions[n].queue);
    if (!tried[q] && n > 8) {
      tried[q] = true;
      CAPTURE(n);
      stop_at(s, parts, n);
    }
  }
  CHECK(tried[static_cast<std::size_t>(queue_id::compute)]);
  CHECK(tried[static_cast<std::size_t>(queue_id::cpu)]);
}

/// A block that doesn't return until told.
struct sleeper {
  block::block_entry inner{};
  mutable std::mutex mutex{};
  mutable std::condition_variable woken{};
  bool awake = false;

  void wake() {
    std::lock_guard const lock(mutex);
    awake = true;
    woken.notify_all();
  }
};

TEST_CASE("a block that never returns is named; the engine is usable once it does") {
  test::subject s = mlp();
  sleeper lazy;
  block::block_entry& entry = s.table.blocks[2];
  lazy.inner = entry;
  entry.object = &lazy;
  entry.backward =
      [](void const* object, scope& at, tensor_view x, tensor_view dy, tensor_view dx) {
        auto const& own = *static_cast<sleeper const*>(object);
        {
          std::unique_lock lock(own.mutex);
          own.woken.wait(lock, [&] { return own.awake; });
        }
        own.inner.backward(own.inner.object, at, x, dy, dx);
      };
  entry.forward = [](void const* object, scope& at, tensor_view x, tensor_view y) {
    auto const& own = *static_cast<sleeper const*>(object);
    own.inner.forward(own.inner.object, at, x, y);
  };
  device::host_device d;
  comm::self alone;
  runtime::engine<device::host_device> engine(
      d, alone, s.table, parts_of(s), {}, {.stall_after = patience});
  engine.initialise(s.load);
  test::step_data const data(s, 0);
  std::string const why = message_of([&] { (void)engine.step(data.get(), {}).get(); });
  CHECK(contains(why, "queue compute runs backward of block 2 (h), micro-batch 0"));
  lazy.wake();
  while (engine.hangs()) {
    (void)message_of([&] { engine.initialise(s.load); });
  }
  CHECK(test::difference(test::train(engine, s, 2), test::train_plain(s, 2)) == "");
}

TEST_CASE("a rank that never comes: the others say which, where, and go free") {
  test::subject const s = mlp(3);
  runtime::plan_parts const parts = parts_of(s);
  comm::thread_group group(3, std::chrono::minutes(10));
  comm::thread_group pause(3);
  std::array<std::string, 3> why{};
  std::array<std::optional<runtime::stall>, 3> seen{};
  std::array<double, 3> seconds{};
  test::on_ranks(3, [&](std::uint32_t rank) {
    comm::threads mine(group, rank);
    comm::threads other(pause, rank);
    test::stopping_device d;
    runtime::engine<test::stopping_device, comm::threads> engine(
        d,
        mine,
        s.table,
        parts,
        {},
        {.stall_after = rank == 1 ? 0 : patience, .on_stall = keep(seen[rank])});
    engine.initialise(s.load);
    if (rank == 1) {  // it stays away from the first gather
      std::uint32_t n = 0;
      while (parts.programs.front().instructions[n].op != schedule::opcode::gather) {
        ++n;
      }
      d.stop(n + 1);
    }
    auto const start = std::chrono::steady_clock::now();
    test::global_data const data(s, 0);
    if (rank == 1) {
      (void)engine.step(data.of(rank), {});
      other.sum(0);  // the others have given up
      d.go_on();
      why[rank] = message_of([&] { engine.flush(); });
    } else {
      why[rank] = message_of([&] { (void)engine.step(data.of(rank), {}).get(); });
      seconds[rank] = since(start);
      CHECK_FALSE(engine.hangs());
      other.sum(0);
    }
  });
  bool named = false;
  for (std::uint32_t const rank : {0U, 2U}) {
    CAPTURE(why[rank]);
    CHECK(seconds[rank] < 20);
    CHECK((seen[rank].has_value() || contains(why[rank], "aborted")));
    if (seen[rank]) {
      runtime::queue_state const* const at = seen[rank]->culprit();
      REQUIRE(at != nullptr);
      CHECK(at->queue == queue_id::gather);
      CHECK(at->ranks == std::vector<std::uint32_t>{1});
      named = named || contains(why[rank], "runs gather of chunk 0 (instruction ");
      CHECK(contains(why[rank], "and waits for rank 1"));
    }
  }
  CHECK(named);
  CHECK(contains(why[1], "gather of chunk 0: rank "));
  CHECK(contains(why[1], "aborted: rank "));
}

TEST_CASE("patience that isn't needed changes nothing, and slow work is no stall") {
  test::subject const s = mlp();
  comm::self alone;
  device::host_device d;
  runtime::engine<device::host_device> engine(
      d, alone, s.table, parts_of(s), {}, {.stall_after = 30});
  CHECK(test::difference(test::train(engine, s, 3), test::train_plain(s, 3)) == "");
  // Some 40 ms a copy: the step takes longer than 400 ms, but something always moves.
  device::host_link const link{.latency = {40'000'000'000}};
  device::host_device slow({.h2d = link, .d2h = link});
  runtime::engine<device::host_device> patient(
      slow, alone, s.table, parts_of(s), {}, {.stall_after = 0.4});
  auto const start = std::chrono::steady_clock::now();
  CHECK(test::difference(test::train(patient, s, 1), test::train_plain(s, 1)) == "");
  CHECK(since(start) > 0.4);
}

}  // namespace

}  // namespace stall_test
