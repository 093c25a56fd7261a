// SPDX-License-Identifier: Apache-2.0
// A short run of three ranks in which the system refuses the n-th allocation of one of them, for
// every n: no rank hangs, all others hear of it unless they are done, nothing is left behind, and
// fresh engines on the same devices give the right bits.

#include "protrain/comm/error.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/heap/heap.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/ranks.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace rank_allocation_fails_test {

namespace {

using namespace protrain;
using test::heap::left_to_fail;
using test::heap::spared;

constexpr std::uint32_t ranks = 3;

test::subject mlp() {
  model::job job = test::job_of(dtype::bf16, 1, 0.05F);
  job.micro_batch = 2;
  job.sequence = 2;
  job.world = ranks;
  return test::make_subject(
      test::make_mlp<bfloat16>({.layers = 1}), job, test::uniform_values(0.4F));
}

/// One rank's run of one step.
struct attempt {
  bool out_of_memory = false;
  int culprit = -1;  ///< whom a comm_error names
  std::string wrong{};
  std::optional<test::outcome> bits{};
  double seconds = 0;
};

class world {
 public:
  explicit world(test::subject const& s) : subject_(s), data_(s, 0) {}

  /// The n-th allocation of rank `failing` fails; 0 = none. `parts` may be of any plan.
  std::array<attempt, ranks> run(runtime::plan_parts const& parts,
                                 std::uint32_t failing,
                                 std::uint64_t n) {
    std::array<attempt, ranks> out{};
    comm::thread_group group(ranks, std::chrono::seconds(20));
    test::on_ranks(ranks, [&](std::uint32_t rank) {
      spared = true;
      comm::threads mine(group, rank);
      auto const start = std::chrono::steady_clock::now();
      train(out[rank], parts, mine, rank == failing ? n : 0);
      std::chrono::duration<double> const took = std::chrono::steady_clock::now() - start;
      out[rank].seconds = took.count();
    });
    return out;
  }

  std::uint64_t live() const {
    std::uint64_t sum = 0;
    for (device::host_device const& d : devices_) {
      sum += test::live(d);
    }
    return sum;
  }

 private:
  /// What is prepared here isn't part of the run.
  void train(attempt& a, runtime::plan_parts parts, comm::threads& comm, std::uint64_t n) {
    test::outcome seen;
    seen.losses.resize(1);
    seen.norms.resize(1);
    seen.clipped.resize(1);
    block::table table = subject_.table;
    std::vector<std::vector<float>> read(table.parameters.size());
    std::optional<runtime::engine<device::host_device, comm::threads>> engine;
    spared = n == 0;
    left_to_fail = n == 0 ? left_to_fail.load() : n;
    try {
      engine.emplace(devices_[comm.rank()], comm, std::move(table), std::move(parts));
      engine->initialise(subject_.load);
      auto const r = engine->step(data_.of(comm.rank()), {.learning_rate = 1e-2}).get();
      seen.losses[0] = std::bit_cast<std::uint32_t>(r.loss);
      seen.norms[0] = std::bit_cast<std::uint32_t>(r.grad_norm);
      seen.clipped[0] = std::bit_cast<std::uint32_t>(r.grad_norm_clipped);
      for (std::size_t i = 0; i < read.size(); ++i) {
        read[i] = engine->read(make_id<parameter_id>(i));
      }
      spared = true;
      for (auto const& values : read) {
        seen.parameters.push_back(test::bits_of(values));
      }
      a.wrong = test::memory_difference(*engine);
      a.bits = std::move(seen);
    } catch (std::bad_alloc const&) {
      a.out_of_memory = true;
    } catch (comm::comm_error const& e) {
      a.culprit = static_cast<int>(e.rank());
    }
    spared = true;
  }

  test::subject const& subject_;
  test::global_data data_;
  std::array<device::host_device, ranks> devices_;
};

/// Allocation after allocation, until a run has none that is left to fail.
std::uint64_t fail_every_allocation(test::subject const& s, test::placement const& p) {
  runtime::plan_parts parts = test::parts_of(s, p);
  parts.programs.resize(1);  // nothing is left over, nothing evaluated
  test::outcome const plain = test::train_plain_ranks(s, 1, test::between::nothing);
  world all(s);
  std::uint64_t n = 1;
  std::uint64_t went_on = 0;
  for (bool more = true; more; n += test::scaled(100) < 100 ? 7U : 1U) {
    auto const failing = static_cast<std::uint32_t>(n % ranks);
    CAPTURE(failing);
    CAPTURE(n);
    auto const seen = all.run(parts, failing, n);
    more = left_to_fail == 0;
    left_to_fail = 0;
    REQUIRE(all.live() == 0);
    // Its own thread or a worker of some rank; or the device only wanted to rest its queues.
    auto const failed = std::ranges::find_if(seen, &attempt::out_of_memory) - seen.begin();
    REQUIRE((more || failed == ranks));
    REQUIRE(std::ranges::count_if(seen, &attempt::out_of_memory) <= 1);
    went_on += more && failed == ranks ? 1U : 0U;
    for (attempt const& a : seen) {
      REQUIRE((a.out_of_memory || a.culprit == failed || a.bits.has_value()));
      REQUIRE((!a.bits || test::difference(*a.bits, plain) == ""));
      REQUIRE(a.wrong == "");
      REQUIRE(a.seconds < 10);
    }
    for (attempt const& fresh : all.run(parts, failing, 0)) {
      REQUIRE(fresh.bits.has_value());
      REQUIRE(test::difference(*fresh.bits, plain) == "");
      REQUIRE(fresh.wrong == "");
    }
    REQUIRE(all.live() == 0);
  }
  std::printf("%llu allocations, without %llu of which the run went on\n",
              static_cast<unsigned long long>(n),
              static_cast<unsigned long long>(went_on));
  CHECK(went_on < n / 10);
  return n;
}

TEST_CASE("every allocation of one of three ranks fails once: streamed updates") {
  test::subject const s = mlp();
  CHECK(fail_every_allocation(
            s, {.persistent = {0, 1, 0}, .counts = {.checkpoint = 1}, .streamed = {1}}) > 50);
}

}  // namespace

}  // namespace rank_allocation_fails_test
