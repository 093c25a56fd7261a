// SPDX-License-Identifier: Apache-2.0
#pragma once
// Waits for a device, and finds out what it hangs on when nothing moves any more.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/timed.hpp"
#include "protrain/runtime/engine_options.hpp"
#include "protrain/runtime/stall.hpp"
#include "protrain/schedule/print.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

namespace protrain::inline v0::runtime::detail {

/// How far each queue is: two relaxed stores an instruction, nothing else.
class progress {
 public:
  /// By queue: 0 before its first instruction, 2 i + 1 in instruction i, 2 i + 2 after it.
  using marks = std::array<std::uint64_t, queue_count>;

  /// Nothing is running.
  void reset() noexcept {
    for (cell& c : cells_) {
      c.mark.store(0, std::memory_order_relaxed);
    }
  }
  void enter(queue_id q, std::uint32_t index) noexcept { set(q, 2 * std::uint64_t{index} + 1); }
  void leave(queue_id q, std::uint32_t index) noexcept { set(q, 2 * std::uint64_t{index} + 2); }

  marks now() const noexcept {
    marks out{};
    for (std::size_t q = 0; q < queue_count; ++q) {
      out[q] = cells_[q].mark.load(std::memory_order_relaxed);
    }
    return out;
  }

 private:
  struct alignas(64) cell {  // a cache line each: queues run on threads of their own
    std::atomic<std::uint64_t> mark{0};
  };
  void set(queue_id q, std::uint64_t to) noexcept {
    cells_[static_cast<std::size_t>(q)].mark.store(to, std::memory_order_relaxed);
  }
  std::array<cell, queue_count> cells_{};
};

/// What queue `q` is at, given all marks.
inline queue_state state_of(queue_id q, schedule::program const& p, progress::marks const& marks) {
  auto const mark_of = [&](queue_id of) { return marks[static_cast<std::size_t>(of)]; };
  auto const done = [&](std::uint32_t i) {
    return mark_of(p.instructions[i].queue) >= 2 * std::uint64_t{i} + 2;
  };
  queue_state out{.queue = q};
  std::uint64_t const mark = mark_of(q);
  std::uint64_t at = mark / 2;  // the one that runs, or behind the last one
  if (mark % 2 == 1) {
    out.doing = queue_doing::runs;
  } else {
    while (at < p.instructions.size() && p.instructions[at].queue != q) {
      ++at;
    }
    out.doing = at < p.instructions.size() ? queue_doing::stands : queue_doing::nothing;
  }
  if (out.doing == queue_doing::nothing) {
    return out;
  }
  out.head = {static_cast<std::uint32_t>(at), p.instructions[at]};
  for (std::uint32_t const d : p.dependencies_of(out.head.what)) {
    if (out.doing != queue_doing::runs && !done(d)) {
      out.waits_for.push_back({d, p.instructions[d]});
    }
  }
  out.doing = out.waits_for.empty() ? out.doing : queue_doing::waits;
  return out;
}

/// Where a collective fails, in the words of the program.
inline comm::comm_error placed(comm::comm_error const& e,
                               schedule::instruction const& i,
                               trace::trace const& facts) {
  return {e.rank(), std::string(schedule::print(i, facts).view()) + ": " + e.what()};
}

template <device::device Device, comm::communicator Comm>
class watch {
 public:
  watch(Device& device, Comm& comm, engine_options const& options)
      : device_(device), comm_(comm), options_(options) {}

  /// Before a segment is submitted. Nothing may be running.
  void begin() noexcept { progress_.reset(); }

  /// One instruction, on the thread of its queue.
  template <class Executor>
  void run(Executor& executor,
           schedule::program const& p,
           trace::trace const& facts,
           std::uint32_t index,
           device::queue_ref queue) {
    progress_.enter(queue.id, index);
    try {
      executor.execute(index, queue);
    } catch (comm::comm_error const& e) {
      throw placed(e, p.instructions[index], facts);
    }
    progress_.leave(queue.id, index);
  }

  /// Waits for everything that is queued. Throws stall_error if nothing moves for too long, and
  /// what the device throws.
  void wait(schedule::program const& p, trace::trace const& facts) {
    if constexpr (device::timed_device<Device>) {
      if (options_.stall_after > 0) {
        wait_for_stall(p, facts);
        return;
      }
    }
    device_.synchronize();
  }

  /// Waits after a failure, which is the one that counts. False if something still hangs.
  bool settle() noexcept {
    try {
      if constexpr (device::timed_device<Device>) {
        if (options_.stall_after > 0) {
          return device_.synchronize_for(seconds(options_.stall_after));
        }
      }
      device_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first failure is the one that counts
    }
    return true;
  }

 private:
  static std::chrono::nanoseconds seconds(double s) {
    return std::chrono::nanoseconds(static_cast<std::int64_t>(s * 1e9));
  }

  void wait_for_stall(schedule::program const& p, trace::trace const& facts) {
    constexpr double looks = 4;  // within the time: a stall is seen at most a quarter late
    progress::marks last = progress_.now();
    double moved = device_.seconds();
    std::array<double, queue_count> since{};
    since.fill(moved);
    while (!device_.synchronize_for(seconds(options_.stall_after / looks))) {
      progress::marks const marks = progress_.now();
      double const now = device_.seconds();
      for (std::size_t q = 0; q < queue_count; ++q) {
        since[q] = marks[q] == last[q] ? since[q] : now;
      }
      moved = marks == last ? moved : now;
      last = marks;
      if (now - moved >= options_.stall_after) {
        give_up(p, facts, since, now, now - moved);
      }
    }
  }

  [[noreturn]] void give_up(schedule::program const& p,
                            trace::trace const& facts,
                            std::array<double, queue_count> const& since,
                            double now,
                            double still) {
    stall out{.rank = comm_.rank(), .part = p.part, .seconds = still};
    progress::marks const marks = progress_.now();
    for (std::size_t q = 0; q < queue_count; ++q) {
      auto const id = static_cast<queue_id>(q);
      out.queues[q] = state_of(id, p, marks);
      out.queues[q].seconds = now - since[q];
      if constexpr (requires { comm_.absent(id); }) {
        if (out.queues[q].doing == queue_doing::runs) {
          out.queues[q].ranks = comm_.absent(id);
        }
      }
    }
    if (options_.on_stall.call != nullptr) {
      options_.on_stall.call(options_.on_stall.context, out);
    }
    throw stall_error(std::move(out), facts);
  }

  Device& device_;
  Comm& comm_;
  engine_options options_;
  progress progress_{};
};

}  // namespace protrain::inline v0::runtime::detail
