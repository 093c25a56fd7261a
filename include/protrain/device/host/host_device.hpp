// SPDX-License-Identifier: Apache-2.0
#pragma once
// A device made of host memory and one worker thread per queue: the quick start, and real
// concurrency for tests. Copies can be slowed down to the rates of a link.

#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/host/detail/task_ring.hpp"
#include "protrain/device/ledger.hpp"
#include "protrain/device/pages.hpp"
#include "protrain/device/timed.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/prctl.h>
#endif

namespace protrain::inline v0::device {

/// How long a copy on one queue takes at least: latency + bytes / rate. A rate of 0 is unlimited.
/// Copies that follow each other without waiting for another queue keep the link busy throughout.
struct host_link {
  bandwidth rate{};
  picoseconds latency{};
  bool operator==(host_link const&) const = default;
};

struct host_options {
  host_link h2d{};  ///< of copies on queue h2d
  host_link d2h{};  ///< of copies on queue d2h
  /// What `reserve` grants at most, by space; 0 = what the system has.
  std::array<std::uint64_t, space_count> limit{};
};

/// One thread issues; each queue's tasks run on its own thread, in the default float environment.
/// In steady state neither submitting nor waiting allocates. Destruction finishes the running tasks
/// and drops those that have not started.
class host_device {
 public:
  static constexpr bool threaded_tasks = true;

  explicit host_device(host_options options = {}) : options_(options) { start(); }
  host_device(host_device const&) = delete;
  host_device& operator=(host_device const&) = delete;
  ~host_device() { stop(); }

  void reserve(space where, std::uint64_t bytes) {
    PROTRAIN_EXPECT(ledger_.usage_of(where).live == 0, "reserve: leases of this space are live");
    pages& memory = memory_[static_cast<std::size_t>(where)];
    std::uint64_t const limit = options_.limit[static_cast<std::size_t>(where)];
    std::uint64_t const held = memory.size();
    if (bytes <= held) {
      return;
    }
    finish();  // no task may still look at what is unmapped
    if ((limit != 0 && bytes > limit) || !memory.try_reserve(bytes)) {
      throw reserve_error(where, bytes, held, limit);
    }
  }
  std::byte* base(space where) const { return memory_[static_cast<std::size_t>(where)].data(); }

  void submit(queue_id q, std::span<touched const> /*declared*/, task work) {
    PROTRAIN_EXPECT(work.run != nullptr, "submit: the task has no function");
    push(of(q), {.work = work});
  }

  event record(queue_id q) {
    marks_.push_back({q, of(q).submitted});
    return {first_mark_ + static_cast<std::uint32_t>(marks_.size() - 1)};
  }

  void wait(queue_id q, event e) {
    // Numbers go on after a reset, so that a stale event is seen as one.
    PROTRAIN_EXPECT(e.value - first_mark_ < marks_.size(),
                    "wait: the event was reset or not recorded");
    mark const& m = marks_[e.value - first_mark_];
    if (m.queue != q) {
      push(of(q), {.is_wait = true, .awaited = m.queue, .until = m.position});
    }
  }

  void reset_events() {
    first_mark_ += static_cast<std::uint32_t>(marks_.size());
    marks_.clear();
  }

  void copy(queue_ref q, void* to, void const* from, std::uint64_t bytes) {
    if (bytes > 0) {
      std::memcpy(to, from, bytes);
    }
    lane& own = of(q.id);
    ++own.counts.copies;
    own.counts.copied += bytes;
    if (q.id == queue_id::h2d) {
      slow_down(own, options_.h2d, bytes);
    } else if (q.id == queue_id::d2h) {
      slow_down(own, options_.d2h, bytes);
    }
  }

  /// The last thing that a task does, with its own queue: the task takes at least `busy`. Tasks that
  /// hold and follow each other without waiting for another queue take the sum: a sleeper that wakes
  /// late delays who waits for it, not its successors.
  void hold(queue_ref q, picoseconds busy) {
    lane& own = of(q.id);
    last_until(own, own.began + ticks(busy));
  }

  void zero(queue_ref /*q*/, void* to, std::uint64_t bytes) {
    if (bytes > 0) {
      std::memset(to, 0, bytes);
    }
  }

  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    PROTRAIN_EXPECT(
        granules(checked_add(offset, bytes)) <= memory_[static_cast<std::size_t>(where)].size(),
        "lease: outside the reserved arena");
    ledger_.lease(where, offset, bytes, what);
  }
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    ledger_.release(where, offset, bytes, what);
  }
  void settle() { ledger_.settle(); }
  usage usage_of(space where) const { return ledger_.usage_of(where); }
  void reset_usage() { ledger_.reset(); }

  /// Waits for all queues, then rethrows what the first failing task threw.
  void synchronize() {
    finish();
    std::exception_ptr failure;
    {
      std::lock_guard const lock(failure_mutex_);
      failure = std::exchange(failure_, nullptr);
    }
    skip_ = false;
    if (failure != nullptr) {
      std::rethrow_exception(failure);
    }
  }

  /// The same if everything is done within `most`; else false, and work goes on.
  bool synchronize_for(std::chrono::nanoseconds most) {
    auto const until = std::chrono::steady_clock::now() + most;
    for (lane& l : lanes_) {
      if (!await_until(l, l.submitted, until)) {
        return false;
      }
    }
    synchronize();
    return true;
  }

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  /// What queue `q` has done; read it after `synchronize`.
  work_counts work_of(queue_id q) const { return lanes_[static_cast<std::size_t>(q)].counts; }

 private:
  using clock = std::chrono::steady_clock;
  using moment = clock::time_point;

  struct lane {
    std::mutex mutex{};
    std::condition_variable arrived{};   // for the worker
    std::condition_variable finished{};  // for who awaits a position
    detail::task_ring ring{};            // guarded by mutex, as are the next four
    std::uint64_t done = 0;
    std::size_t watchers = 0;
    bool idle = false;
    bool closing = false;
    moment ended{};               // guarded as well: `until` of all that is done
    std::uint64_t submitted = 0;  // of the issuing thread
    work_counts counts{};         // of the worker, as all below
    moment began{};               // of the running task, on a clock that no late sleeper delays
    moment until{};               // likewise, the end of all so far
    bool held = false;            // so that the next task begins then, unless it waits
    std::thread worker{};
  };
  struct mark {
    queue_id queue = queue_id::compute;
    std::uint64_t position = 0;
  };

  lane& of(queue_id q) { return lanes_[static_cast<std::size_t>(q)]; }

  static void push(lane& to, detail::queued const& entry) {
    bool idle = false;
    {
      std::lock_guard const lock(to.mutex);
      to.ring.push(entry);
      idle = std::exchange(to.idle, false);
    }
    ++to.submitted;
    if (idle) {
      to.arrived.notify_one();
    }
  }

  static void await(lane& other, std::uint64_t position) {
    std::unique_lock lock(other.mutex);
    await(lock, other, position);
  }
  static void await(std::unique_lock<std::mutex>& lock, lane& other, std::uint64_t position) {
    ++other.watchers;
    other.finished.wait(lock, [&] { return other.done >= position; });
    --other.watchers;
  }

  static bool await_until(lane& other, std::uint64_t position, moment until) {
    std::unique_lock lock(other.mutex);
    ++other.watchers;
    bool const done =
        other.finished.wait_until(lock, until, [&] { return other.done >= position; });
    --other.watchers;
    return done;
  }

  /// A worker waits for another queue's position.
  static void follow(lane& own, lane& other, std::uint64_t position) {
    std::unique_lock lock(other.mutex);
    if (other.done < position) {
      own.held = false;
      await(lock, other, position);
    }
    own.until = std::max(own.until, other.ended);
  }

  void finish() {
    for (lane& l : lanes_) {
      await(l, l.submitted);
    }
    for (lane& l : lanes_) {
      std::lock_guard const lock(l.mutex);
      try {
        l.ring.rest();
      } catch (std::bad_alloc const&) {  // NOLINT(bugprone-empty-catch): it grows when it must
      }
    }
  }

  void serve(queue_id q) {
    wake_punctually();
    lane& own = of(q);
    std::unique_lock lock(own.mutex);
    while (true) {
      while (own.ring.empty() && !own.closing) {
        own.idle = true;
        own.held = false;
        own.arrived.wait(lock);
      }
      own.idle = false;
      if (own.ring.empty()) {
        return;
      }
      detail::queued const entry = own.ring.pop();
      lock.unlock();
      if (entry.is_wait) {
        follow(own, of(entry.awaited), entry.until);
      } else if (!skip_) {
        run(own, q, entry.work);
      }
      lock.lock();
      own.ended = own.until;
      ++own.done;
      if (own.watchers > 0) {
        own.finished.notify_all();
      }
    }
  }

  void run(lane& own, queue_id q, task const& work) {
    ++own.counts.tasks;
    own.began = own.held ? own.until : clock::now();
    own.until = own.began;
    own.held = false;
    try {
      work.run(work.context, work.index, queue_ref{.id = q});
    } catch (...) {
      std::lock_guard const lock(failure_mutex_);
      if (failure_ == nullptr) {
        failure_ = std::current_exception();
      }
      skip_ = true;
    }
  }

  /// Copies of one task follow each other.
  static void slow_down(lane& own, host_link const& link, std::uint64_t bytes) {
    if (link.rate.per_second == 0 && link.latency.value == 0) {
      return;
    }
    picoseconds const busy = link.rate.per_second == 0 ? picoseconds{} : time_of(bytes, link.rate);
    last_until(own, own.until + ticks(busy + link.latency));
  }

  /// Work that took longer than it should is not made up for.
  static void last_until(lane& own, moment end) {
    own.until = std::max(own.held ? own.until : clock::now(), end);
    own.held = true;
    // Sleepers wake late by about this much, and some copies are shorter.
    std::this_thread::sleep_until(own.until - std::chrono::microseconds(60));
    while (clock::now() < own.until) {
      std::this_thread::yield();
    }
  }

  static clock::duration ticks(picoseconds t) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(ceil_div(t.value, 1000)));
  }

  /// Linux lets sleepers be 50 us late; a slowed copy should not be.
  static void wake_punctually() {
#if defined(__linux__)
    ::prctl(PR_SET_TIMERSLACK, 1000UL, 0UL, 0UL, 0UL);
#endif
  }

  void start() {
    try {
      for (std::size_t q = 0; q < queue_count; ++q) {
        lanes_[q].worker = std::thread([this, q] { serve(static_cast<queue_id>(q)); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }

  void stop() noexcept {
    skip_ = true;
    for (lane& l : lanes_) {
      {
        std::lock_guard const lock(l.mutex);
        l.closing = true;
      }
      l.arrived.notify_one();
    }
    for (lane& l : lanes_) {
      if (l.worker.joinable()) {
        l.worker.join();
      }
    }
  }

  host_options options_;
  ledger ledger_{};
  std::array<pages, space_count> memory_{};
  std::vector<mark> marks_{};
  std::uint32_t first_mark_ = 0;
  std::mutex failure_mutex_{};
  std::exception_ptr failure_{};
  std::atomic<bool> skip_{false};
  std::array<lane, queue_count> lanes_{};
};

static_assert(device<host_device> && timed_device<host_device>);

}  // namespace protrain::inline v0::device
