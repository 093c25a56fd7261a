// SPDX-License-Identifier: Apache-2.0
// Each kind of call that a device may fail, on real threads: for every n, the n-th call of a short
// run fails. A clear error that names the call, nothing left behind, and a fresh engine on the same
// device gives the right bits.

#include "protrain/device/error.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/runtime/memory_error.hpp"
#include "test/support/device_double.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace every_kind_fails_test {

namespace {

using namespace protrain;
using test::contains;
using test::device_call;

constexpr std::uint64_t steps = 2;

test::subject mlp(std::uint64_t accumulate, float clip) {
  model::job job = test::job_of(dtype::bf16, accumulate, clip);
  job.micro_batch = 2;
  job.sequence = 2;
  job.dropout = 0.1F;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 2}), job, test::uniform_values(0.4F));
}

/// Every n under default settings, a sample where tests are scaled down.
std::uint64_t stride() { return test::scaled(100) < 100 ? 7 : 1; }

struct tally {
  std::uint64_t failed = 0;
  std::uint64_t went_on = 0;
  std::uint64_t refused = 0;
};

// --- the device fails ----------------------------------------------------------------------------

/// Calls `f`, and once more if the device fails it: it must then succeed, or be refused because an
/// update had begun.
template <class F>
bool insist(tally& sum, std::string& wrong, device_call what, F const& f) {
  try {
    f();
    return true;
  } catch (device::device_error const& e) {
    ++sum.failed;
    wrong += contains(e.what(), std::string(test::name_of(what)) + ": injected fault at call ")
                 ? ""
                 : std::string(e.what()) + "; ";
  } catch (std::exception const& e) {
    wrong += std::string(e.what()) + "; ";
  }
  try {
    f();
    ++sum.went_on;
    return true;
  } catch (runtime::engine_error const& e) {
    ++sum.refused;
    wrong += contains(e.what(), "make a new one") ? "" : std::string(e.what()) + "; ";
    return false;
  }
}

/// A whole run on `d`, whatever fails in it; the bits, unless the engine refused to go on.
std::optional<test::outcome> run(test::faulty_device& d,
                                 test::subject const& s,
                                 runtime::plan_parts const& parts,
                                 device_call what,
                                 tally& sum,
                                 std::string& wrong) {
  comm::self alone;
  std::optional<runtime::engine<test::faulty_device>> engine;
  insist(sum, wrong, what, [&] { engine.emplace(d, alone, s.table, parts); });
  insist(sum, wrong, what, [&] { engine->initialise(s.load); });
  test::outcome seen;
  for (std::uint64_t step = 0; step < steps; ++step) {
    if (!insist(sum, wrong, what, [&] { test::add_steps(seen, *engine, s, step, 1); })) {
      return std::nullopt;
    }
  }
  insist(sum, wrong, what, [&] {
    seen.parameters.clear();
    test::add_parameters(seen, *engine, s);
  });
  return seen;
}

tally fail_device(device_call what, test::subject const& s, runtime::plan_parts const& parts) {
  test::outcome const plain = test::train_plain(s, steps);
  tally sum;
  test::faulty_device good;
  std::string wrong;
  good.fail(what, 0);
  REQUIRE(run(good, s, parts, what, sum, wrong) == plain);
  std::uint64_t const calls = good.calls(what);
  CHECK(calls > 0);
  for (std::uint64_t n = 1; n <= calls; n += stride()) {
    CAPTURE(test::name_of(what));
    CAPTURE(n);
    test::faulty_device d;
    d.fail(what, n);
    tally once;
    auto const bits = run(d, s, parts, what, once, wrong);
    REQUIRE(wrong == "");
    REQUIRE(once.failed == 1);
    REQUIRE(bits.has_value() == (once.refused == 0));
    REQUIRE((!bits || test::difference(*bits, plain) == ""));
    REQUIRE(test::live(d) == 0);
    tally none;
    REQUIRE(run(d, s, parts, what, none, wrong) == plain);
    REQUIRE(none.failed == 0);
    REQUIRE(test::live(d) == 0);
    sum.failed += 1;
    sum.went_on += once.went_on;
    sum.refused += once.refused;
  }
  std::printf("%s: %llu calls, %llu failed: %llu times the engine went on, %llu times it refused\n",
              std::string(test::name_of(what)).c_str(),
              static_cast<unsigned long long>(calls),
              static_cast<unsigned long long>(sum.failed),
              static_cast<unsigned long long>(sum.went_on),
              static_cast<unsigned long long>(sum.refused));
  return sum;
}

TEST_CASE("a device's calls, kind by kind: updates wait for the norm") {
  test::subject const s = mlp(2, 0.05F);
  runtime::plan_parts const parts = test::parts_of(
      s, {.persistent = {0, 1, 0}, .counts = {.swap = 1, .checkpoint = 1, .interval = 2}});
  for (std::size_t k = 0; k < test::device_call_count; ++k) {
    auto const what = static_cast<device_call>(k);
    tally const t = fail_device(what, s, parts);
    bool const before_steps =
        what == device_call::reserve_device || what == device_call::reserve_host;
    CHECK(t.went_on > 0);
    CHECK((!before_steps || t.refused == 0));
  }
}

TEST_CASE("a device's calls, kind by kind: updates during backward") {
  test::subject const s = mlp(1, 0);
  runtime::plan_parts const parts = test::parts_of(
      s, {.persistent = {0}, .counts = {.swap = 9}, .time = update::timing::during_backward});
  for (device_call const what :
       {device_call::submit, device_call::copy, device_call::synchronize}) {
    tally const t = fail_device(what, s, parts);
    CHECK(t.went_on > 0);
  }
}

// --- memory that the system refuses --------------------------------------------------------------

TEST_CASE("pinned limit reached while RAM is free: said as such, with bytes asked and held") {
  // 100 Mi elements in each of three tensors: 4.2 GiB on the host, against a limit of 1 GiB.
  constexpr std::uint64_t many = std::uint64_t{100} << 20U;
  test::subject const large = test::constant_model(
      test::job_of(dtype::bf16), {{"a", {many}}}, {{"b", {many}}}, {{"c", {many}}});
  runtime::plan_parts const parts = test::parts_of(large, {.persistent = {0}});
  std::uint64_t const asked =
      schedule::memory_of(parts.programs[schedule::peak_program(parts.programs, space::host)],
                          space::host)
          .peak;
  REQUIRE(asked > std::uint64_t{4} << 30U);
  device::host_device d({.limit = {0, std::uint64_t{1} << 30U}});
  d.reserve(space::host, 8192);
  comm::self alone;
  bool thrown = false;
  try {
    runtime::engine<device::host_device> const engine(d, alone, large.table, parts);
  } catch (runtime::memory_error const& e) {
    thrown = true;
    std::string const why = e.what();
    CAPTURE(why);
    CHECK(contains(why,
                   "reserve: pinned host memory: asked for " + std::to_string(asked) +
                       " bytes while 8192 were held, the limit is 1073741824"));
    CHECK(contains(why, "bytes of host memory, most of it "));
    CHECK(contains(why, "optimizer state of chunk "));
    CHECK_FALSE(contains(why, "GPU"));
    CHECK_FALSE(contains(why, "out of memory"));
    CHECK(e.call() == "reserve");
    CHECK(e.holders().where == space::host);
    CHECK(e.holders().top == asked);
    CHECK(e.holders().all.size() > 3);
  }
  CHECK(thrown);
  CHECK(test::live(d) == 0);
  // The device is as good as before: what fits runs.
  test::subject const s = mlp(2, 0);
  CHECK(test::difference(test::train_on(d,
                                        s,
                                        test::plan(s, {.persistent = {0}}).layout,
                                        test::plan(s, {.persistent = {0}}).programs,
                                        2)
                             .bits,
                         test::train_plain(s, 2)) == "");
}

TEST_CASE("device memory that isn't there: said with the largest holders") {
  test::subject const s = mlp(2, 0);
  runtime::plan_parts const parts = test::parts_of(s, {.persistent = {1}});
  device::host_device d({.limit = {4096, 0}});
  comm::self alone;
  std::string const why = test::message_of(
      [&] { runtime::engine<device::host_device> const e(d, alone, s.table, parts); });
  CHECK(contains(why, "reserve: device memory: asked for "));
  CHECK(contains(why, "while 0 were held, the limit is 4096"));
  CHECK(contains(why, "bytes of device memory, most of it "));
  CHECK_FALSE(contains(why, "pinned"));
  CHECK(test::live(d) == 0);
}

}  // namespace

}  // namespace every_kind_fails_test
