// SPDX-License-Identifier: Apache-2.0
// A short run on a device whose n-th call fails, for every n: a clear error, nothing left behind,
// the step can be tried again, and a fresh engine on the same device gives the right bits.

#include "protrain/device/error.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/error.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace every_call_fails_test {

namespace {

using namespace protrain;

constexpr std::uint64_t steps = 2;

/// What a run with one failing call came to.
struct attempt {
  bool failed = false;    ///< some call threw
  bool retried = false;   ///< the step that failed was repeated by the same engine
  bool given_up = false;  ///< it refused to, since an update had begun
  std::string wrong{};
  std::optional<test::outcome> bits{};
};

/// Calls `f` once more if the device fails it. False if it can't be repeated.
template <class F>
bool insist(attempt& a, F f) {
  try {
    f();
    return true;
  } catch (device::device_error const& e) {
    a.wrong +=
        a.failed || !test::contains(e.what(), "injected fault") ? std::string(e.what()) + "; " : "";
    a.failed = true;
  }
  try {
    f();
    a.retried = true;
    return true;
  } catch (runtime::engine_error const& e) {
    a.given_up = true;
    a.wrong += test::contains(e.what(), "make a new one") ? "" : e.what();
    return false;
  }
}

attempt run(device::serial_device& d, test::subject const& s, runtime::plan_parts const& parts) {
  attempt a;
  comm::self alone;
  std::optional<runtime::engine<device::serial_device>> engine;
  insist(a, [&] { engine.emplace(d, alone, s.table, parts); });
  insist(a, [&] { engine->initialise(s.load); });
  test::outcome seen;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (!insist(a, [&] { test::add_steps(seen, *engine, s, step, 1); })) {
      return a;
    }
  }
  bool const read = insist(a, [&] {
    seen.parameters.clear();
    test::add_parameters(seen, *engine, s);
  });
  if (read) {  // which carries out what was left over, and may fail for good amid that
    a.bits = seen;
  }
  return a;
}

struct tally {
  std::uint64_t calls = 0;
  std::uint64_t retried = 0;
  std::uint64_t given_up = 0;
};

tally fail_every_call(test::subject const& s, test::placement const& p) {
  runtime::plan_parts const parts = test::parts_of(s, p);
  test::outcome const plain = test::train_plain(s, steps);
  tally sum;
  {
    device::serial_device d;
    CHECK(run(d, s, parts).failed == false);
    sum.calls = d.calls();
  }
  std::uint64_t const stride = test::scaled(100) < 100 ? 7 : 1;
  for (std::uint64_t n = 1; n <= sum.calls; n += stride) {
    CAPTURE(n);
    device::serial_device d({.order = device::run_policy::random, .seed = n, .fail_call = n});
    attempt const a = run(d, s, parts);
    REQUIRE(a.failed);
    REQUIRE(a.wrong == "");
    REQUIRE(test::live(d) == 0);
    REQUIRE(a.bits.has_value() != a.given_up);
    if (a.bits) {
      REQUIRE(test::difference(*a.bits, plain) == "");
    }
    test::engine_run const fresh = test::train_on(d, s, parts.layout, parts.programs, steps);
    REQUIRE(test::difference(fresh.bits, plain) == "");
    REQUIRE(fresh.memory == "");
    REQUIRE(test::live(d) == 0);
    sum.retried += a.retried ? 1U : 0U;
    sum.given_up += a.given_up ? 1U : 0U;
  }
  std::printf("%llu calls: %llu times the same engine went on, %llu times only a new one\n",
              static_cast<unsigned long long>(sum.calls),
              static_cast<unsigned long long>(sum.retried),
              static_cast<unsigned long long>(sum.given_up));
  return sum;
}

test::subject mlp(std::uint64_t accumulate, float clip) {
  model::job job = test::job_of(dtype::bf16, accumulate, clip);
  job.micro_batch = 2;
  job.sequence = 2;
  job.dropout = 0.1F;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 2}), job, test::uniform_values(0.4F));
}

TEST_CASE("every call fails once: updates after backward, mixed placement") {
  tally const t = fail_every_call(
      mlp(2, 0.05F),
      {.persistent = {0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1, .interval = 2}});
  CHECK(t.retried > t.given_up);
}

TEST_CASE("every call fails once: updates during backward, everything offloaded") {
  tally const t = fail_every_call(mlp(1, 0),
                                  {.persistent = {0},
                                   .counts = {.swap = 9, .checkpoint = 9, .interval = 2},
                                   .time = update::timing::during_backward});
  CHECK(t.retried > 0);
  CHECK(t.given_up > 0);
}

TEST_CASE("every call fails once: streamed updates, of the next step and during backward") {
  tally const later = fail_every_call(mlp(1, 0.05F),
                                      {.persistent = {0},
                                       .time = update::timing::before_next_use,
                                       .defer = 2,
                                       .streamed = {1, 0, 1}});
  CHECK(later.retried > 0);
  tally const early = fail_every_call(
      mlp(1, 0),
      {.persistent = {0, 1, 0}, .time = update::timing::during_backward, .streamed = {1}});
  CHECK(early.retried > 0);
  CHECK(early.given_up > 0);
}

}  // namespace

}  // namespace every_call_fails_test
