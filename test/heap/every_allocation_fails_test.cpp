// SPDX-License-Identifier: Apache-2.0
// A short run in which the system refuses the n-th allocation from the heap, for every n: an
// exception, nothing left behind, and a fresh engine on the same device gives the right bits.

#include "protrain/device/host/host_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/error.hpp"
#include "test/heap/heap.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace every_allocation_fails_test {

namespace {

using namespace protrain;
using test::heap::allocations;
using test::heap::left_to_fail;

constexpr std::uint64_t steps = 2;

test::subject mlp() {
  model::job job = test::job_of(dtype::bf16, 2, 0.05F);
  job.micro_batch = 2;
  job.sequence = 2;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 1}), job, test::uniform_values(0.4F));
}

struct attempt {
  bool failed = false;
  bool went_on = false;
  bool refused = false;
  std::string wrong{};
  std::optional<test::outcome> bits{};
};

/// Calls `f`, once more if memory runs out in it; false if the engine refuses that.
template <class F>
bool insist(attempt& a, F const& f) {
  try {
    f();
    return true;
  } catch (std::bad_alloc const&) {
    a.failed = true;
  }
  try {
    f();
    a.went_on = true;
    return true;
  } catch (runtime::engine_error const& e) {
    a.refused = true;
    a.wrong += test::contains(e.what(), "make a new one") ? "" : e.what();
    return false;
  }
}

/// What a test prepares isn't part of the run.
struct prepared {
  test::subject const& subject;
  runtime::plan_parts const& parts;
  std::vector<test::step_data> data{};

  prepared(test::subject const& s, runtime::plan_parts const& p) : subject(s), parts(p) {
    for (std::uint64_t step = 0; step < steps; ++step) {
      data.emplace_back(s, step);
    }
  }
};

/// The n-th allocation of a run fails; 0 = none.
attempt run(device::host_device& d, prepared const& with, std::uint64_t n) {
  attempt a;
  comm::self alone;
  test::outcome seen;
  for (auto* const list : {&seen.losses, &seen.norms, &seen.clipped}) {
    list->resize(steps);
  }
  std::optional<runtime::engine<device::host_device>> engine;
  left_to_fail = n;
  insist(a, [&] { engine.emplace(d, alone, with.subject.table, with.parts); });
  insist(a, [&] { engine->initialise(with.subject.load); });
  for (std::uint64_t step = 0; step < steps; ++step) {
    double const rate = 1e-2 / static_cast<double>(1 + step);
    runtime::step_result r;
    if (!insist(a, [&] { r = engine->step(with.data[step].get(), {.learning_rate = rate}); })) {
      return a;
    }
    seen.losses[step] = std::bit_cast<std::uint32_t>(r.loss);
    seen.norms[step] = std::bit_cast<std::uint32_t>(r.grad_norm);
    seen.clipped[step] = std::bit_cast<std::uint32_t>(r.grad_norm_clipped);
  }
  insist(a, [&] {
    seen.parameters.clear();
    test::add_parameters(seen, *engine, with.subject);
  });
  left_to_fail = 0;
  a.wrong += test::memory_difference(*engine);
  a.bits = seen;
  return a;
}

TEST_CASE("every allocation fails once") {
  test::subject const s = mlp();
  runtime::plan_parts const parts = test::parts_of(
      s, {.persistent = {0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1, .interval = 2}});
  prepared const with(s, parts);
  test::outcome const plain = test::train_plain(s, steps);
  std::uint64_t calls = 0;
  {
    device::host_device d;
    std::uint64_t const before = allocations;
    REQUIRE(run(d, with, 0).bits == plain);
    calls = allocations - before;
  }
  std::uint64_t went_on = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t n = 1; n <= calls; n += test::scaled(100) < 100 ? 7U : 1U) {
    CAPTURE(n);
    device::host_device d;
    attempt const a = run(d, with, n);
    left_to_fail = 0;
    REQUIRE(a.wrong == "");
    REQUIRE((!a.bits || test::difference(*a.bits, plain) == ""));
    REQUIRE(a.bits.has_value() != a.refused);
    REQUIRE(test::live(d) == 0);
    attempt const fresh = run(d, with, 0);
    REQUIRE(fresh.failed == false);
    REQUIRE(fresh.wrong == "");
    REQUIRE(test::difference(*fresh.bits, plain) == "");
    REQUIRE(test::live(d) == 0);
    went_on += a.went_on ? 1U : 0U;
    refused += a.refused ? 1U : 0U;
  }
  std::printf("%llu allocations: %llu times the engine went on, %llu times it refused\n",
              static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(went_on),
              static_cast<unsigned long long>(refused));
  CHECK(went_on > refused);
}

/// Counts its calls.
void count(void* context, std::uint32_t, device::queue_ref) {
  ++*static_cast<std::atomic<std::uint64_t>*>(context);
}

TEST_CASE("a device that comes to rest needs no memory for it") {
  device::host_device d;
  std::atomic<std::uint64_t> done{0};
  constexpr std::uint64_t many = 1000;  // more than a queue has room for, but one at a time
  for (std::uint64_t i = 0; i < many; ++i) {
    d.submit(queue_id::compute, {}, {&count, &done, 0});
    while (done <= i) {
      std::this_thread::yield();
    }
  }
  left_to_fail = 1;
  d.synchronize();
  left_to_fail = 0;
  CHECK(done == many);
}

}  // namespace

}  // namespace every_allocation_fails_test
