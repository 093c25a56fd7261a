// SPDX-License-Identifier: Apache-2.0
// The hazard microscope: it names every planted fault, and is silent without one.

#include "protrain/device/serial/serial_device.hpp"

#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace serial_device_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one class
using device::device_error;
using device::hazard_action;
using device::hazard_kind;
using device::queue_ref;
using device::run_policy;
using device::serial_device;
using device::serial_options;
using device::touched;
using test::contract_throws;
using test::issuer;

constexpr touched reads(std::uint64_t offset, std::uint64_t n, space s = space::device) {
  return {.where = s, .offset = offset, .bytes = n, .read = true};
}
constexpr touched writes(std::uint64_t offset, std::uint64_t n, space s = space::device) {
  return {.where = s, .offset = offset, .bytes = n, .write = true};
}

/// A device with 16 KiB in each space.
struct bench {
  explicit bench(serial_options options = {}) : device(options), issue(device) {
    device.reserve(space::device, 16 << 10);
    device.reserve(space::host, 16 << 10);
  }
  std::byte* at(std::uint64_t offset) const { return device.base(space::device) + offset; }
  void lease(std::uint64_t offset, std::uint64_t n) {
    device.lease(space::device, offset, n, category::scratch);
  }
  void release(std::uint64_t offset, std::uint64_t n) {
    device.release(space::device, offset, n, category::scratch);
  }
  void fill(queue_id q, std::uint64_t offset, std::uint64_t n, int value) {
    issue.task(q, {writes(offset, n)}, [=, this](queue_ref) { std::memset(at(offset), value, n); });
  }
  void look(queue_id q, std::uint64_t offset, std::uint64_t n) {
    issue.task(q, {reads(offset, n)}, [](queue_ref) {});
  }
  std::string failure() {
    try {
      device.synchronize();
    } catch (device_error const& e) {
      CHECK(e.call() == "synchronize");
      return e.what();
    }
    return "";
  }

  serial_device device;
  issuer<serial_device> issue;
};

bool contains(std::string const& text, char const* part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("serial: a missing wait is a race that names both tasks") {
  bench b;
  b.lease(0, 512);
  b.fill(queue_id::h2d, 0, 512, 1);
  b.issue.after(queue_id::compute, queue_id::h2d);
  b.look(queue_id::compute, 0, 512);
  CHECK(b.failure().empty());
  b.fill(queue_id::h2d, 0, 512, 2);
  b.look(queue_id::compute, 256, 16);
  std::string const text = b.failure();
  CHECK(contains(text, "race"));
  CHECK(contains(text, "task 3 on queue compute reads device bytes [256, 272)"));
  CHECK(contains(text, "task 2 on queue h2d writes"));
  REQUIRE(b.device.hazards().size() == 1);
  CHECK(b.device.hazards()[0].kind == hazard_kind::race);
  CHECK(b.device.hazards()[0].task == 3);
  CHECK(b.device.hazards()[0].other == 2);
  CHECK(b.device.work_of(queue_id::compute).tasks == 1);
  CHECK(b.failure().empty());  // raised once; synchronize orders everything
}

TEST_CASE("serial: a write must come after the reads before it, on every queue") {
  for (bool const ordered : {false, true}) {
    bench b;
    b.lease(0, 256);
    b.fill(queue_id::compute, 0, 256, 1);
    device::event const filled = b.device.record(queue_id::compute);
    b.device.wait(queue_id::d2h, filled);
    b.device.wait(queue_id::reduce, filled);
    b.look(queue_id::d2h, 0, 256);
    b.look(queue_id::reduce, 128, 64);
    b.issue.after(queue_id::compute, queue_id::d2h);
    if (ordered) {
      b.issue.after(queue_id::compute, queue_id::reduce);
    }
    b.fill(queue_id::compute, 0, 256, 2);
    CHECK(b.failure().empty() == ordered);
    CHECK(b.device.hazards().size() == (ordered ? 0 : 1));
  }
}

TEST_CASE("serial: memory that is leased anew must wait for its old users") {
  for (bool const ordered : {false, true}) {
    bench b;
    b.lease(0, 256);
    b.fill(queue_id::compute, 0, 256, 1);
    b.look(queue_id::compute, 0, 256);
    b.release(0, 256);
    b.lease(0, 1024);
    if (ordered) {
      b.issue.after(queue_id::h2d, queue_id::compute);
    }
    b.fill(queue_id::h2d, 0, 1024, 2);
    CHECK(b.failure().empty() == ordered);
    if (!ordered) {
      REQUIRE(b.device.hazards().size() == 2);
      CHECK(b.device.hazards()[0].kind == hazard_kind::race);
      CHECK(b.device.hazards()[0].task == 2);
      CHECK(b.device.hazards()[0].other == 0);
      CHECK(b.device.hazards()[1].other == 1);
    }
  }
}

TEST_CASE("serial: reading what nothing wrote since the lease") {
  bench b;
  b.lease(0, 256);
  b.fill(queue_id::compute, 0, 100, 1);
  b.look(queue_id::compute, 0, 100);
  CHECK(b.failure().empty());
  b.look(queue_id::compute, 90, 20);
  CHECK(contains(b.failure(),
                 "uninitialised: task 2 on queue compute reads device bytes [100, 110)"));
  b.fill(queue_id::compute, 100, 156, 1);
  b.look(queue_id::compute, 0, 256);
  CHECK(b.failure().empty());
  b.release(0, 256);
  b.lease(0, 256);  // written before, but not since
  b.look(queue_id::compute, 0, 1);
  CHECK(contains(b.failure(), "uninitialised"));
}

TEST_CASE("serial: touching what no live lease holds") {
  bench b;
  b.lease(0, 100);
  b.lease(256, 256);
  b.lease(512, 256);
  auto const refused = [&](touched const& t) {
    b.issue.task(queue_id::cpu, {t}, [](queue_ref) {});
    return contains(b.failure(), "not_leased");
  };
  CHECK_FALSE(refused(writes(0, 100)));
  CHECK_FALSE(refused(writes(612, 0)));
  CHECK(refused(writes(0, 101)));      // the padding
  CHECK(refused(writes(768, 1)));      // free memory
  CHECK(refused(writes(256, 512)));    // two leases
  CHECK(refused(writes(1 << 20, 1)));  // outside the arena
  CHECK(refused(writes(0, 1, space::host)));
  // Released after the submission is in time, released before is not.
  b.fill(queue_id::cpu, 256, 256, 1);
  b.release(256, 256);
  CHECK(b.failure().empty());
  CHECK(refused(writes(256, 1)));
}

TEST_CASE("serial: fresh leases hold poison, released memory does again") {
  bench b;
  auto const all_poison = [&](std::uint64_t begin, std::uint64_t end) {
    return std::all_of(b.at(begin), b.at(end), [](std::byte x) { return x == device::poison; });
  };
  CHECK(all_poison(0, 16 << 10));
  b.lease(0, 1024);
  bool fresh = false;
  b.issue.task(queue_id::compute, {writes(0, 512)}, [&](queue_ref) {
    fresh = all_poison(0, 1024);
    std::memset(b.at(0), 1, 512);
  });
  b.fill(queue_id::compute, 512, 512, 2);
  b.device.synchronize();
  CHECK(fresh);
  CHECK(b.at(511)[0] == std::byte{1});
  CHECK(b.at(512)[0] == std::byte{2});
  b.release(0, 1024);
  CHECK(all_poison(0, 1024));
}

// Leases end and begin while d2h, starved or not, still has to read what they held.
TEST_CASE("serial: poison and canaries wait for the tasks that may still want the bytes") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    bench b({.order = run_policy::adversarial, .seed = seed});
    auto const count = [&](std::uint64_t begin, std::uint64_t end, int value) {
      return std::count(b.at(begin), b.at(end), static_cast<std::byte>(value));
    };
    b.lease(0, 1024);
    b.lease(1024, 1024);
    b.fill(queue_id::compute, 0, 1024, 1);
    b.fill(queue_id::compute, 1024, 1024, 2);
    b.device.synchronize();
    std::ptrdiff_t seen = 0;
    b.issue.task(
        queue_id::d2h, {reads(1024, 1024)}, [&](queue_ref) { seen = count(1024, 2048, 2); });
    b.release(0, 1024);
    b.release(1024, 1024);
    b.lease(0, 1500);  // its canaries are among the bytes that d2h reads
    b.fill(queue_id::h2d, 0, 1024, 3);
    b.release(0, 1500);
    b.lease(0, 1024);
    b.fill(queue_id::h2d, 0, 1024, 4);
    std::ptrdiff_t kept = 0;
    b.issue.task(queue_id::h2d, {reads(0, 1024)}, [&](queue_ref) { kept = count(0, 1024, 4); });
    CHECK(b.failure().empty());
    CHECK(seen == 1024);
    CHECK(kept == 1024);
    CHECK(count(1024, 2048, static_cast<int>(device::poison)) >= 1024 - 36);
  }
}

TEST_CASE("serial: a write past the end of a tensor is found after the task") {
  bench b;
  b.lease(0, 100);
  b.lease(256, 256);
  b.fill(queue_id::compute, 0, 100, 1);
  CHECK(b.failure().empty());
  b.issue.task(
      queue_id::compute, {writes(0, 100)}, [&](queue_ref) { std::memset(b.at(0), 1, 104); });
  b.fill(queue_id::compute, 256, 256, 1);
  CHECK(contains(b.failure(), "overrun: task 1 on queue compute wrote device bytes [100, 104)"));
  CHECK(b.at(256)[0] == device::poison);  // what follows a hazard doesn't run
  // The canary is back, and a copy of another lease's padding isn't mistaken for it.
  CHECK(b.failure().empty());
  b.lease(1024, 100);
  b.fill(queue_id::compute, 1024, 100, 1);
  b.issue.task(queue_id::compute, {reads(1024, 100), writes(0, 100)}, [&](queue_ref) {
    std::memcpy(b.at(0), b.at(1024), 256);
  });
  CHECK(contains(b.failure(), "overrun"));
}

TEST_CASE("serial: an overrun by a task that doesn't touch the lease is found at the end") {
  bench b;
  b.lease(0, 100);
  b.lease(256, 256);
  b.issue.task(
      queue_id::compute, {writes(256, 256)}, [&](queue_ref) { b.at(255)[0] = std::byte{}; });
  CHECK(contains(b.failure(), "overrun: a task wrote device bytes [255, 256)"));
}

TEST_CASE("serial: every changed byte is compared if asked for") {
  bench b({.check_writes = true});
  b.lease(0, 256);
  b.lease(256, 256);
  b.lease(512, 256);
  b.fill(queue_id::compute, 256, 256, 1);
  b.fill(queue_id::compute, 512, 100, 1);
  CHECK(b.failure().empty());
  for (std::uint64_t const stray : {0U, 255U, 512U, 700U, 16383U}) {
    CAPTURE(stray);
    b.issue.task(queue_id::compute, {writes(256, 256), reads(512, 100)}, [&](queue_ref) {
      std::memset(b.at(256), 2, 256);
      b.at(stray)[0] = std::byte{0x77};
    });
    CHECK(contains(b.failure(), "undeclared"));
    CHECK(b.device.hazards().back().begin == stray);
    CHECK(b.device.hazards().back().end == stray + 1);
    b.fill(queue_id::compute, 256, 256, 1);
    CHECK(b.failure().empty());
  }
  b.issue.task(
      queue_id::compute, {}, [&](queue_ref) { b.device.base(space::host)[5] = std::byte{1}; });
  CHECK(contains(b.failure(), "host bytes [5, 6)"));
}

TEST_CASE("serial: copies and fills must be declared") {
  bench b;
  b.lease(0, 512);
  b.fill(queue_id::compute, 0, 512, 1);
  std::vector<std::byte> mine(4096);
  auto const refused = [&](touched const& t, auto body) {
    b.issue.task(queue_id::compute, {t}, body);
    return contains(b.failure(), "undeclared");
  };
  CHECK_FALSE(refused(writes(0, 512), [&](queue_ref q) {
    b.device.copy(q, b.at(0), mine.data(), 512);
    b.device.copy(q, mine.data(), b.at(0), 512);  // may read what it writes
  }));
  CHECK(refused(reads(0, 512), [&](queue_ref q) { b.device.zero(q, b.at(0), 1); }));
  CHECK(refused(writes(0, 512), [&](queue_ref q) { b.device.zero(q, b.at(0), 513); }));
  CHECK(refused(reads(0, 256), [&](queue_ref q) { b.device.copy(q, mine.data(), b.at(0), 257); }));
  CHECK(b.at(0)[0] == std::byte{0});  // from `mine`: the refused ones did nothing
}

TEST_CASE("serial: recording hazards lets everything run") {
  bench b({.on_hazard = hazard_action::record});
  b.lease(0, 256);
  int ran = 0;
  b.issue.task(queue_id::compute, {reads(0, 256)}, [&](queue_ref) {
    ran += b.at(0)[0] == device::poison ? 1 : 0;
  });
  b.fill(queue_id::h2d, 0, 256, 1);
  CHECK_NOTHROW(b.device.synchronize());
  CHECK(ran == 1);
  REQUIRE(b.device.hazards().size() == 2);
  CHECK(b.device.hazards()[0].kind == hazard_kind::uninitialised);
  CHECK(b.device.hazards()[1].kind == hazard_kind::race);
  b.device.clear_hazards();
  CHECK(b.device.hazards().empty());
}

TEST_CASE("serial: the caller's own writes are declared") {
  bench b;
  b.lease(0, 256);
  std::memset(b.at(0), 3, 256);
  device::note_written(b.device, space::device, 0, 256);
  int seen = 0;
  b.issue.task(queue_id::compute, {reads(0, 256)}, [&](queue_ref) {
    seen = static_cast<int>(b.at(255)[0]);
  });
  CHECK(b.failure().empty());
  CHECK(seen == 3);
  b.look(queue_id::compute, 0, 256);
  b.device.written(space::device, 0, 1);
  CHECK(contains(b.failure(), "the caller writes device bytes [0, 1) while"));
  b.device.written(space::device, 256, 1);
  CHECK(contains(b.failure(), "in no live lease"));
}

TEST_CASE("serial: a skipped first write leaves memory unwritten") {
  bench b;
  b.lease(0, 256);
  b.issue.task(queue_id::compute, {}, [](queue_ref) { throw std::runtime_error("first"); });
  b.fill(queue_id::compute, 0, 256, 1);
  CHECK_THROWS_WITH(b.device.synchronize(), "first");
  b.look(queue_id::compute, 0, 256);
  CHECK(contains(b.failure(), "uninitialised"));
}

TEST_CASE("serial: call n fails, for every n, and the device goes on") {
  auto const play = [](bench& b) {
    b.lease(0, 256);
    b.lease(256, 256);
    try {
      b.issue.task(queue_id::compute, {writes(0, 256)}, [&](queue_ref q) {
        b.device.zero(q, b.at(0), 256);
      });
      b.issue.after(queue_id::d2h, queue_id::compute);
      b.issue.copy(queue_id::d2h, space::device, 256, space::device, 0, 256);
      b.device.synchronize();
    } catch (...) {
      b.device.fail_after(0);
      try {
        b.device.synchronize();  // what was issued before the failure may still run
      } catch (device_error const&) {
      }
      b.release(0, 256);
      b.release(256, 256);
      throw;
    }
    b.release(0, 256);
    b.release(256, 256);
  };
  bench clean;
  std::uint64_t const before = clean.device.calls();
  play(clean);
  std::uint64_t const calls = clean.device.calls() - before;
  CHECK(calls == 7);  // 2 submits, record, wait, zero, copy, synchronize
  for (std::uint64_t n = 1; n <= calls; ++n) {
    CAPTURE(n);
    bench b;
    b.device.fail_after(n);
    CHECK_THROWS_AS(play(b), device_error);
    CHECK(b.device.usage_of(space::device).live == 0);
    CHECK_NOTHROW(play(b));
    CHECK(b.at(0)[0] == device::poison);
  }
  bench refuses({.limit = {16 << 10, 16 << 10}, .fail_call = 3});
  CHECK_THROWS_AS(refuses.device.reserve(space::host, 1), device_error);
  CHECK_THROWS_WITH_AS(refuses.device.reserve(space::host, 20000),
                       doctest::Contains("host memory: asked for 20000 bytes while 16384 were "
                                         "held, the limit is 16384"),
                       device_error);
}

TEST_CASE("serial: tasks issue nothing, and copy on their own queue only") {
  contract_throws const guard;
  bench b;
  b.lease(0, 256);
  b.issue.task(queue_id::compute, {}, [&](queue_ref) { b.device.record(queue_id::cpu); });
  CHECK_THROWS_AS(b.device.synchronize(), contract_throws::broken);
  b.issue.task(queue_id::compute, {writes(0, 256)}, [&](queue_ref) {
    b.device.zero({.id = queue_id::h2d}, b.at(0), 1);
  });
  CHECK_THROWS_AS(b.device.synchronize(), contract_throws::broken);
  CHECK_THROWS_AS(b.device.zero({}, b.at(0), 1), contract_throws::broken);
}

std::vector<std::uint32_t> order_of(serial_options options) {
  bench b(options);
  std::vector<std::uint32_t> ran;
  for (std::uint32_t i = 0; i < 30; ++i) {
    b.issue.task(static_cast<queue_id>(i % 3), {}, [&ran, i](queue_ref) { ran.push_back(i); });
  }
  b.device.synchronize();
  return ran;
}

TEST_CASE("serial: orders are reproducible, and differ by policy and seed") {
  auto const first = order_of({});
  CHECK(std::is_sorted(first.begin(), first.end()));
  for (run_policy const p : {run_policy::random, run_policy::adversarial}) {
    std::vector<std::vector<std::uint32_t>> seen;
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      seen.push_back(order_of({.order = p, .seed = seed}));
      CHECK(seen.back() == order_of({.order = p, .seed = seed}));
      for (std::uint32_t q = 0; q < 3; ++q) {  // each queue in its own order all the same
        std::vector<std::uint32_t> own;
        std::copy_if(
            seen.back().begin(), seen.back().end(), std::back_inserter(own), [&](std::uint32_t i) {
              return i % 3 == q;
            });
        CHECK(std::is_sorted(own.begin(), own.end()));
      }
    }
    std::sort(seen.begin(), seen.end());
    auto const kinds = std::unique(seen.begin(), seen.end()) - seen.begin();
    CHECK(kinds >= 5);
  }
}

TEST_CASE("serial: some seed starves a queue to the end") {
  bool starved = false;
  bool favoured = false;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    auto const ran = order_of({.order = run_policy::adversarial, .seed = seed});
    auto const queue_one = [](std::uint32_t i) { return i % 3 == 1; };
    starved = starved || std::all_of(ran.end() - 10, ran.end(), queue_one);
    favoured = favoured || std::all_of(ran.begin(), ran.begin() + 10, queue_one);
  }
  CHECK(starved);
  CHECK(favoured);
}

}  // namespace

}  // namespace serial_device_test
