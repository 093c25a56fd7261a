// SPDX-License-Identifier: Apache-2.0
// What is special to the host device: real concurrency, slowed copies, an orderly end.

#include "protrain/device/host/host_device.hpp"

#include "protrain/core/philox.hpp"
#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace host_device_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one class
using device::host_device;
using device::queue_ref;
using test::issuer;

/// Opens when `n` threads have arrived.
class rendezvous {
 public:
  explicit rendezvous(int n) : missing_(n) {}
  void arrive() {
    std::unique_lock lock(mutex_);
    if (--missing_ == 0) {
      all_.notify_all();
    }
    all_.wait(lock, [this] { return missing_ <= 0; });
  }

 private:
  std::mutex mutex_{};
  std::condition_variable all_{};
  int missing_;
};

TEST_CASE("host: queues run at the same time, each on a thread of its own") {
  host_device d;
  issuer issue(d);
  rendezvous all(queue_count);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int round = 0; round < 2; ++round) {
    for (queue_id const q : test::all_queues) {
      issue.task(q, {}, [&, round](queue_ref) {
        if (round == 0) {
          all.arrive();  // hangs unless all six are here together
        }
        std::lock_guard const lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
    }
  }
  d.synchronize();
  CHECK(threads.size() == queue_count);
  CHECK(threads.count(std::this_thread::get_id()) == 0);
}

TEST_CASE("host: a copy takes at least as long as its link says") {
  host_device d({.h2d = {.rate = {100'000'000}}, .d2h = {.rate = {}, .latency = 5_ms}});
  std::vector<std::byte> from(1'000'000, std::byte{7});
  std::vector<std::byte> to(from.size());
  issuer issue(d);
  auto const timed = [&](queue_id q, std::size_t n) {
    double const start = d.seconds();
    issue.task(q, {}, [&, n](queue_ref r) { d.copy(r, to.data(), from.data(), n); });
    d.synchronize();
    return d.seconds() - start;
  };
  CHECK(timed(queue_id::h2d, 1'000'000) >= 0.010);
  CHECK(timed(queue_id::d2h, 1) >= 0.005);
  CHECK(to == from);
  // Directions don't share a link: both together take as long as one.
  double const start = d.seconds();
  issue.task(queue_id::h2d, {}, [&](queue_ref r) { d.copy(r, to.data(), from.data(), 500'000); });
  issue.task(queue_id::d2h, {}, [&](queue_ref r) { d.copy(r, &to[600'000], from.data(), 1); });
  d.synchronize();
  CHECK(d.seconds() - start >= 0.005);
  CHECK(d.work_of(queue_id::h2d) == device::work_counts{2, 2, 1'500'000});
}

TEST_CASE("host: what tasks hold for adds up, and begins anew after a wait") {
  host_device d({.d2h = {.rate = {}, .latency = 3_ms}});
  issuer issue(d);
  auto const hold = [&](queue_id q, picoseconds t) {
    issue.task(q, {}, [&d, t](queue_ref r) { d.hold(r, t); });
  };
  auto const timed = [&](auto const& submit) {
    double const start = d.seconds();
    submit();
    d.synchronize();
    d.reset_events();
    return d.seconds() - start;
  };
  auto const work = [](queue_ref) { std::this_thread::sleep_for(std::chrono::milliseconds(6)); };
  CHECK(timed([&] {
          for (int i = 0; i < 5; ++i) {
            hold(queue_id::compute, 2_ms);
          }
        }) >= 0.010);
  // From the task's beginning: a shorter one adds nothing, work that took longer isn't made up for.
  CHECK(timed([&] {
          issue.task(queue_id::cpu, {}, [&](queue_ref r) {
            d.hold(r, 4_ms);
            d.hold(r, 1_ms);
          });
          hold(queue_id::cpu, 4_ms);
          issue.task(queue_id::cpu, {}, [&](queue_ref r) {
            work(r);
            d.hold(r, 1_ms);
          });
          hold(queue_id::cpu, 4_ms);
        }) >= 0.018);
  // The second of two copies in a task begins where the first ends.
  std::byte const from{7};
  std::byte to{};
  CHECK(timed([&] {
          issue.task(queue_id::d2h, {}, [&](queue_ref r) {
            d.copy(r, &to, &from, 1);
            d.copy(r, &to, &from, 1);
          });
        }) >= 0.006);
  // After waiting for another queue, or for work, time counts from the end of the wait.
  CHECK(timed([&] {
          hold(queue_id::cpu, 1_ms);
          issue.task(queue_id::reduce, {}, work);
          issue.after(queue_id::cpu, queue_id::reduce);
          hold(queue_id::cpu, 4_ms);
        }) >= 0.010);
  // As if the first task on cpu woke late: what it then needn't wait for still counts.
  CHECK(timed([&] {
          hold(queue_id::reduce, 5_ms);
          issue.task(queue_id::cpu, {}, [&](queue_ref r) {
            d.hold(r, 1_ms);
            work(r);
          });
          issue.after(queue_id::cpu, queue_id::reduce);
          hold(queue_id::cpu, 5_ms);
        }) >= 0.010);
  hold(queue_id::gather, 1_ms);
  d.synchronize();
  work({});
  CHECK(timed([&] { hold(queue_id::gather, 5_ms); }) >= 0.005);
}

TEST_CASE("host: destruction finishes the running task and drops the others") {
  std::atomic<int> ran{0};
  rendezvous started(2);
  {
    std::deque<std::function<void()>> bodies;  // outlives the device
    host_device d;
    auto const submit = [&](queue_id q, std::function<void()> body) {
      bodies.push_back(std::move(body));
      d.submit(q,
               {},
               {.run = [](void* c,
                          std::uint32_t,
                          queue_ref) { (*static_cast<std::function<void()>*>(c))(); },
                .context = &bodies.back()});
    };
    submit(queue_id::compute, [&] {
      started.arrive();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      ++ran;
    });
    d.wait(queue_id::cpu, d.record(queue_id::compute));
    submit(queue_id::cpu, [&] { ran += 100; });
    submit(queue_id::compute, [&] { ran += 100; });
    started.arrive();
  }
  CHECK(ran == 1);
}

TEST_CASE("host: the ring grows and keeps its order, then stays") {
  device::detail::task_ring ring;
  std::uint64_t pushed = 0;
  std::uint64_t popped = 0;
  auto const push = [&] { ring.push({.until = pushed++}); };
  auto const pop = [&] { CHECK(ring.pop().until == popped++); };
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 200; ++i) {
      push();
      push();
      pop();
    }
    while (!ring.empty()) {
      pop();
    }
  }
  CHECK(pushed == 1200);
  CHECK(ring.capacity() == 256);
  test::contract_throws const guard;
  CHECK_THROWS_AS(ring.pop(), test::contract_throws::broken);
}

TEST_CASE("host: a wait for a limited time ends in time, and says whether all is done") {
  using namespace std::chrono_literals;
  host_device d;
  issuer issue(d);
  CHECK(d.synchronize_for(0ms));
  rendezvous both(2);
  std::atomic<bool> later{false};
  issue.task(queue_id::compute, {}, [&](queue_ref) { both.arrive(); });
  device::event const behind = d.record(queue_id::compute);
  d.wait(queue_id::d2h, behind);
  issue.task(queue_id::d2h, {}, [&](queue_ref) { later = true; });
  auto const start = std::chrono::steady_clock::now();
  CHECK_FALSE(d.synchronize_for(20ms));
  CHECK(std::chrono::steady_clock::now() - start >= 20ms);
  CHECK_FALSE(later);
  both.arrive();
  CHECK(d.synchronize_for(10min));
  CHECK(later);
  issue.task(queue_id::cpu, {}, [](queue_ref) { throw std::runtime_error("a task failed"); });
  CHECK_THROWS_WITH_AS((void)d.synchronize_for(10min), "a task failed", std::runtime_error);
  CHECK(d.synchronize_for(10min));
}

TEST_CASE("host: a limit refuses and says so") {
  host_device d({.limit = {4096, 8192}});
  d.reserve(space::device, 4096);
  CHECK_THROWS_WITH_AS(d.reserve(space::device, 4097),
                       doctest::Contains("device memory: asked for 4097 bytes while 4096 were "
                                         "held, the limit is 4096"),
                       device::device_error);
  d.reserve(space::host, 8192);
  CHECK(d.base(space::device) != nullptr);
}

TEST_CASE("32-bit counts: a copy reaches bytes beyond 4 GiB") {
  host_device d;
  std::uint64_t const n = (std::uint64_t{1} << 32U) + (1U << 20U);
  d.reserve(space::host, n);  // pages that nobody touches cost nothing
  std::byte* const base = d.base(space::host);
  for (std::uint64_t const at : {std::uint64_t{0}, n - 1}) {
    base[at] = std::byte{7};
  }
  issuer issue(d);
  issue.task(queue_id::h2d, {}, [&](queue_ref q) {
    d.copy(q, base + n / 2, base + n - 1, 1);
    d.copy(q, base + n / 2 + 1, base, 1);
    d.zero(q, base + n - 1, 1);
  });
  d.synchronize();
  CHECK(base[n / 2] == std::byte{7});
  CHECK(base[n / 2 + 1] == std::byte{7});
  CHECK(base[0] == std::byte{7});
  CHECK(base[n - 1] == std::byte{0});
  d.lease(space::host, granules(n) - 256, 1, category::batch);
  CHECK(d.usage_of(space::host).peak == n);
}

// Random waits between all queues, many times over: for ThreadSanitizer.
TEST_CASE("host: steps in a row, with failures among them") {
  host_device d;
  d.reserve(space::host, 4096);
  random_stream const draws{.key = 99};
  std::uint64_t drawn = 0;
  for (int round = 0; round < 200; ++round) {
    issuer issue(d);
    std::uint64_t sum = 0;  // guarded by events alone
    bool const fails = draws.word(drawn++) % 4 == 0;
    std::uint64_t const at = draws.word(drawn++) % 50;
    queue_id last = queue_id::compute;
    for (std::uint64_t i = 0; i < 50; ++i) {
      auto const q = static_cast<queue_id>(draws.word(drawn++) % queue_count);
      issue.after(q, last);
      issue.task(q, {}, [&sum, fails, at, i](queue_ref) {
        if (fails && i == at) {
          throw i;
        }
        sum += i;
      });
      last = q;
    }
    if (fails) {
      CHECK_THROWS_AS(d.synchronize(), std::uint64_t);
      CHECK(sum == at * (at - 1) / 2);
    } else {
      d.synchronize();
      CHECK(sum == 1225);
    }
    d.reset_events();
  }
}

}  // namespace

}  // namespace host_device_test
