// SPDX-License-Identifier: Apache-2.0
// Random programs against an oracle that compares every pair of tasks, and correct ones against
// themselves in every order.

#include "protrain/core/philox.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace serial_property_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one class
using device::hazard_kind;
using device::run_policy;
using device::touched;

constexpr std::uint64_t arena = 4096;

/// A random number below n per call.
class draws {
 public:
  explicit draws(std::uint64_t seed) : stream_{.key = seed} {}
  std::uint64_t operator()(std::uint64_t n) { return stream_.word(drawn_++) % n; }

 private:
  random_stream stream_;
  std::uint64_t drawn_ = 0;
};

/// What a program does at one place: everything that the device is told.
struct step {
  enum class kind { task, lease, release, sync } what = kind::task;
  std::size_t queue = 0;
  std::vector<touched> ranges{};
  std::vector<std::size_t> after{};  ///< tasks of other queues to wait for
  std::uint64_t offset = 0;          ///< of a lease
  std::uint64_t bytes = 0;
};

/// Leases anywhere, tasks that write and read inside them, waits with probability wait / 8.
std::vector<step> random_program(std::uint64_t seed, std::uint64_t wait, int length) {
  draws draw(seed);
  std::vector<step> all;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> live;
  std::size_t tasks = 0;
  for (int i = 0; i < length; ++i) {
    std::uint64_t const dice = draw(16);
    if (dice < 3 || live.empty()) {
      std::uint64_t const offset = 256 * draw(12);
      std::uint64_t const bytes = 1 + draw(1000);
      bool const taken = std::any_of(live.begin(), live.end(), [&](auto const& l) {
        return offset < l.first + granules(l.second) && l.first < offset + granules(bytes);
      });
      if (!taken) {
        live.emplace_back(offset, bytes);
        all.push_back({.what = step::kind::lease, .offset = offset, .bytes = bytes});
        if (draw(4) != 0) {
          all.push_back({.queue = draw(queue_count),
                         .ranges = {{.offset = offset, .bytes = bytes, .write = true}}});
          ++tasks;
        }
      }
    } else if (dice < 5) {
      std::size_t const l = draw(live.size());
      all.push_back(
          {.what = step::kind::release, .offset = live[l].first, .bytes = live[l].second});
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(l));
    } else if (dice == 5 && draw(4) == 0) {
      all.push_back({.what = step::kind::sync});
    } else {
      step s{.queue = draw(queue_count)};
      for (std::uint64_t r = 0; r <= draw(2); ++r) {
        auto const [offset, bytes] = live[draw(live.size())];
        std::uint64_t const skip = draw(bytes);
        bool const write = draw(2) == 0;
        s.ranges.push_back({.offset = offset + skip,
                            .bytes = 1 + draw(bytes - skip),
                            .write = write,
                            .read = !write || draw(3) == 0});
      }
      for (std::size_t back = 1; back <= tasks && back <= 6; ++back) {
        if (draw(8) < wait) {
          s.after.push_back(tasks - back);
        }
      }
      ++tasks;
      all.push_back(s);
    }
  }
  return all;
}

/// All pairs, byte by byte: which tasks race, and which read something unwritten.
struct verdict {
  std::set<std::pair<std::uint32_t, std::uint32_t>> races{};  ///< (later, earlier)
  std::set<std::uint32_t> uninitialised{};
  bool clean() const { return races.empty() && uninitialised.empty(); }
};

verdict oracle(std::vector<step> const& program) {
  struct done_task {
    step const* what;
    std::set<std::size_t> before;
  };
  std::vector<done_task> tasks;
  std::vector<bool> written(arena, false);
  std::vector<std::size_t> newest(queue_count, ~std::size_t{0});
  std::size_t synced = 0;
  verdict v;
  for (step const& s : program) {
    if (s.what == step::kind::lease) {
      std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(s.offset), s.bytes, false);
    } else if (s.what == step::kind::sync) {
      synced = tasks.size();
    }
    if (s.what != step::kind::task) {
      continue;
    }
    done_task t{&s, {}};
    for (std::size_t i = 0; i < synced; ++i) {
      t.before.insert(i);
    }
    auto direct = s.after;
    if (newest[s.queue] != ~std::size_t{0}) {
      direct.push_back(newest[s.queue]);
    }
    for (std::size_t const d : direct) {
      t.before.insert(d);
      t.before.insert(tasks[d].before.begin(), tasks[d].before.end());
    }
    auto const self = static_cast<std::uint32_t>(tasks.size());
    for (touched const& a : s.ranges) {
      for (std::size_t i = 0; i < tasks.size(); ++i) {
        for (touched const& b : tasks[i].what->ranges) {
          if (a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes &&
              (a.write || b.write) && t.before.count(i) == 0) {
            v.races.emplace(self, static_cast<std::uint32_t>(i));
          }
        }
      }
      auto const first = written.begin() + static_cast<std::ptrdiff_t>(a.offset);
      if (a.read && std::find(first, first + static_cast<std::ptrdiff_t>(a.bytes), false) !=
                        first + static_cast<std::ptrdiff_t>(a.bytes)) {
        v.uninitialised.insert(self);
      }
    }
    for (touched const& a : s.ranges) {
      if (a.write) {
        std::fill_n(written.begin() + static_cast<std::ptrdiff_t>(a.offset), a.bytes, true);
      }
    }
    newest[s.queue] = tasks.size();
    tasks.push_back(std::move(t));
  }
  return v;
}

/// A task sums what it reads and writes a function of that sum and its index.
void work(device::serial_device& d, step const& s, std::uint32_t index) {
  std::byte* const base = d.base(space::device);
  std::uint32_t sum = index * 2654435761U;
  for (touched const& t : s.ranges) {
    for (std::uint64_t i = 0; t.read && i < t.bytes; ++i) {
      sum = sum * 31 + static_cast<std::uint32_t>(base[t.offset + i]);
    }
  }
  for (touched const& t : s.ranges) {
    for (std::uint64_t i = 0; t.write && i < t.bytes; ++i) {
      sum = sum * 1664525 + 1013904223;
      base[t.offset + i] = static_cast<std::byte>(sum >> 24U);
    }
  }
}

struct outcome {
  verdict found{};
  std::vector<std::byte> memory{};
  std::size_t other_hazards = 0;
};

outcome play(std::vector<step> const& program, device::serial_options options) {
  device::serial_device d(options);
  d.reserve(space::device, arena);
  test::issuer<device::serial_device> issue(d);
  std::vector<device::event> events;
  for (step const& s : program) {
    if (s.what == step::kind::lease) {
      d.lease(space::device, s.offset, s.bytes, category::scratch);
    } else if (s.what == step::kind::release) {
      d.release(space::device, s.offset, s.bytes, category::scratch);
    } else if (s.what == step::kind::sync) {
      d.synchronize();
    } else {
      auto const queue = static_cast<queue_id>(s.queue);
      for (std::size_t const a : s.after) {
        d.wait(queue, events[a]);
      }
      auto const index = static_cast<std::uint32_t>(events.size());
      issue.task(queue, s.ranges, [&d, &s, index](device::queue_ref) { work(d, s, index); });
      events.push_back(d.record(queue));
    }
  }
  d.synchronize();
  outcome o;
  for (device::hazard const& h : d.hazards()) {
    if (h.kind == hazard_kind::race) {
      o.found.races.emplace(h.task, h.other);
    } else if (h.kind == hazard_kind::uninitialised) {
      o.found.uninitialised.insert(h.task);
    } else {
      ++o.other_hazards;
    }
  }
  o.memory.assign(d.base(space::device), d.base(space::device) + arena);
  return o;
}

TEST_CASE("serial: verdicts on random programs are those of the oracle") {
  int ordered = 0;
  int racing = 0;
  int written = 0;
  for (std::uint64_t seed = 0; seed < 600; ++seed) {
    CAPTURE(seed);
    auto const program = random_program(seed, seed % 9, 4 + static_cast<int>(seed % 60));
    verdict const want = oracle(program);
    outcome const got = play(program,
                             {.order = run_policy::random,
                              .seed = seed,
                              .on_hazard = device::hazard_action::record,
                              .check_writes = true});
    REQUIRE(got.found.uninitialised == want.uninitialised);
    REQUIRE(got.other_hazards == 0);
    // Every reported pair races; and the first task that races with anyone is always reported.
    REQUIRE(std::includes(
        want.races.begin(), want.races.end(), got.found.races.begin(), got.found.races.end()));
    REQUIRE(got.found.races.empty() == want.races.empty());
    if (!want.races.empty()) {
      REQUIRE(got.found.races.begin()->first == want.races.begin()->first);
    }
    (want.races.empty() ? ordered : racing) += 1;
    written += want.uninitialised.empty() ? 1 : 0;
  }
  CHECK(ordered > 50);
  CHECK(racing > 200);
  CHECK(written > 20);
}

TEST_CASE("serial: a correct program gives the same memory in every order") {
  int programs = 0;
  for (std::uint64_t seed = 0; programs < 60; ++seed) {
    CAPTURE(seed);
    auto program = random_program(seed, 3, 40);
    // Make it correct: every task waits for those it races with, reads only what was written.
    for (verdict v = oracle(program); !v.clean(); v = oracle(program)) {
      std::uint32_t index = 0;
      for (step& s : program) {
        if (s.what != step::kind::task) {
          continue;
        }
        for (auto const& [later, earlier] : v.races) {
          if (later == index) {
            s.after.push_back(earlier);
          }
        }
        for (touched& t : s.ranges) {
          t.read = t.read && v.uninitialised.count(index) == 0;
          t.write = t.write || !t.read;
        }
        ++index;
      }
    }
    ++programs;
    auto const want = play(program, {.check_writes = true}).memory;
    for (std::uint64_t order = 0; order < 12; ++order) {
      auto const policy = order % 3 == 0 ? run_policy::random : run_policy::adversarial;
      REQUIRE(play(program, {.order = policy, .seed = order, .check_writes = true}).memory == want);
    }
  }
}

}  // namespace

}  // namespace serial_property_test
