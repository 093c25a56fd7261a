// SPDX-License-Identifier: Apache-2.0
// Something fails on one of three ranks, on real threads: for every n, the n-th collective of a
// kind, or the n-th call of a device, in a short run. Every rank ends, with an error that names the
// culprit and the call, or done and right; nothing is left behind, and fresh engines on the same
// devices give the right bits.

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/error.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/memory_error.hpp"
#include "test/support/comm_double.hpp"
#include "test/support/device_double.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace ranks_fail_test {

namespace {

using namespace protrain;
using test::comm_call;
using test::contains;

constexpr std::uint32_t ranks = 3;

test::subject mlp(std::uint32_t layers, std::uint64_t accumulate, float clip) {
  model::job job = test::job_of(dtype::bf16, accumulate, clip);
  job.micro_batch = 2;
  job.sequence = 2;
  job.world = ranks;
  job.dropout = 0.1F;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = layers}), job, test::uniform_values(0.4F));
}

/// Every n under default settings, a sample where tests are scaled down.
std::uint64_t stride() { return test::scaled(100) < 100 ? 7 : 1; }

struct rank_report {
  std::string what{};                   ///< of the failure; empty if the rank got through
  int culprit = -1;                     ///< whom a comm_error names
  bool of_device = false;               ///< its own device failed
  std::optional<test::outcome> bits{};  ///< if the rank got through
  double seconds = 0;
  std::uint64_t live = 0;
  test::outcome fresh{};
};
using reports = std::array<rank_report, ranks>;

/// Three ranks with a device each, for many runs.
class world {
 public:
  world(test::subject const& s, runtime::plan_parts const& parts) : s_(s), parts_(parts) {}

  /// One run in which something fails on rank `failing`, as `arm(communicator, device)` says, and
  /// one without.
  template <class Arm>
  reports run(std::uint32_t failing, Arm const& arm) {
    reports out{};
    comm::thread_group group(ranks, std::chrono::seconds(20));
    comm::thread_group good(ranks, std::chrono::seconds(20));
    test::on_ranks(ranks, [&](std::uint32_t rank) {
      test::faulty_comm mine(group, rank);
      devices_[rank].fail_any(0);
      if (rank == failing) {
        arm(mine, devices_[rank]);
      }
      fail_once(out[rank], mine, rank);
      devices_[rank].fail_any(0);
      test::faulty_comm fresh(good, rank);
      out[rank].fresh = train(fresh, rank);
      out[rank].live += test::live(devices_[rank]);
    });
    return out;
  }

  /// A rank's collectives of a kind, and calls of its device, in a run without failures.
  struct counts {
    std::array<std::uint64_t, test::comm_call_count> collectives{};
    std::uint64_t device = 0;
  };
  std::array<counts, ranks> count() {
    std::array<counts, ranks> out{};
    comm::thread_group group(ranks, std::chrono::seconds(20));
    test::on_ranks(ranks, [&](std::uint32_t rank) {
      test::faulty_comm mine(group, rank);
      devices_[rank].fail_any(0);
      (void)train(mine, rank);
      for (std::size_t k = 0; k < test::comm_call_count; ++k) {
        out[rank].collectives[k] = mine.calls(static_cast<comm_call>(k));
      }
      out[rank].device = devices_[rank].calls();
    });
    return out;
  }

 private:
  using engine = runtime::engine<test::faulty_device, test::faulty_comm>;

  test::outcome train(test::faulty_comm& comm, std::uint32_t rank) {
    engine e(devices_[rank], comm, s_.table, parts_);
    return test::train_part(
        e, s_, 1, test::between::nothing, [rank](test::global_data const& d) -> auto const& {
          return d.of(rank);
        });
  }

  void fail_once(rank_report& out, test::faulty_comm& comm, std::uint32_t rank) {
    auto const start = std::chrono::steady_clock::now();
    try {
      out.bits = train(comm, rank);
    } catch (comm::comm_error const& e) {
      out.what = e.what();
      out.culprit = static_cast<int>(e.rank());
    } catch (device::device_error const& e) {
      out.what = e.what();
      out.of_device = true;
    } catch (std::exception const& e) {
      out.what = std::string("of no kind: ") + e.what();
    }
    out.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    out.live = test::live(devices_[rank]);
  }

  test::subject const& s_;
  runtime::plan_parts const& parts_;
  std::array<test::faulty_device, ranks> devices_;
};

void fail_collectives(test::subject const& s, runtime::plan_parts const& parts) {
  test::outcome const plain = test::train_plain_ranks(s, 1, test::between::nothing);
  world all(s, parts);
  auto const counts = all.count();
  for (std::size_t k = 0; k < test::comm_call_count; ++k) {
    auto const what = static_cast<comm_call>(k);
    std::uint64_t tried = 0;
    for (std::uint32_t failing = 0; failing < ranks; ++failing) {
      std::uint64_t const calls = counts[failing].collectives[k];
      CHECK(calls > 0);
      for (std::uint64_t n = 1; n <= calls; n += stride()) {
        CAPTURE(test::name_of(what));
        CAPTURE(failing);
        CAPTURE(n);
        ++tried;
        reports const seen = all.run(
            failing, [&](test::faulty_comm& mine, test::faulty_device&) { mine.fail(what, n); });
        std::string const fault =
            std::string(test::name_of(what)) + ": injected fault at call " + std::to_string(n);
        for (rank_report const& r : seen) {
          REQUIRE(r.culprit == static_cast<int>(failing));
          REQUIRE(contains(r.what, fault));
          REQUIRE(r.seconds < 10);
          REQUIRE(r.live == 0);
          REQUIRE(test::difference(r.fresh, plain) == "");
        }
      }
    }
    std::printf("%s: %llu times\n",
                std::string(test::name_of(what)).c_str(),
                static_cast<unsigned long long>(tried));
  }
}

TEST_CASE("a collective that fails on one of three ranks, each in its turn: all hear of it") {
  test::subject const s = mlp(2, 2, 0.05F);
  fail_collectives(
      s, test::parts_of(s, {.persistent = {0, 1, 0}, .counts = {.checkpoint = 1}, .defer = 0}));
}

/// Every call of a device, on one rank each, in turns.
void fail_devices(test::subject const& s, runtime::plan_parts const& parts) {
  test::outcome const plain = test::train_plain_ranks(s, 1, test::between::nothing);
  world all(s, parts);
  auto const counts = all.count();
  std::uint64_t tried = 0;
  std::uint64_t through = 0;
  for (std::uint64_t n = 1; n <= counts[n % ranks].device; n += stride()) {
    auto const failing = static_cast<std::uint32_t>(n % ranks);
    CAPTURE(failing);
    CAPTURE(n);
    ++tried;
    reports const seen =
        all.run(failing, [&](test::faulty_comm&, test::faulty_device& d) { d.fail_any(n); });
    std::string const fault = "injected fault at call " + std::to_string(n);
    REQUIRE(seen[failing].of_device);
    for (rank_report const& r : seen) {
      // Who needed nothing of that rank any more is done; all others hear of it.
      bool const done = r.bits.has_value();
      through += done ? 1U : 0U;
      REQUIRE((r.of_device || done || r.culprit == static_cast<int>(failing)));
      REQUIRE((done || contains(r.what, fault)));
      REQUIRE((!done || test::difference(*r.bits, plain) == ""));
      REQUIRE(r.seconds < 10);
      REQUIRE(r.live == 0);
      REQUIRE(test::difference(r.fresh, plain) == "");
    }
  }
  std::printf("%llu device calls: %llu ranks were through\n",
              static_cast<unsigned long long>(tried),
              static_cast<unsigned long long>(through));
  CHECK(tried > 50 / stride());
  CHECK(through < tried);
}

TEST_CASE("a device that fails on one of three ranks: mixed placement, updates wait for the norm") {
  test::subject const s = mlp(1, 1, 0.05F);
  fail_devices(s, test::parts_of(s, {.persistent = {0, 1, 0}, .counts = {.checkpoint = 1}}));
}

TEST_CASE("a device that fails on one of three ranks: streamed updates during backward") {
  test::subject const s = mlp(1, 1, 0);
  fail_devices(s,
               test::parts_of(s,
                              {.persistent = {0},
                               .counts = {.swap = 1},
                               .time = update::timing::during_backward,
                               .streamed = {1, 0, 1}}));
}

}  // namespace

}  // namespace ranks_fail_test
