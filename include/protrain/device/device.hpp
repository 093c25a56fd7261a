// SPDX-License-Identifier: Apache-2.0
#pragma once
// The device concept: memory, queues, events and copies. A program's engine is written against
// this and nothing else.

#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>

namespace protrain::inline v0::device {

/// A queue as work sees it: which one, and the native handle (a CUDA stream; null on the host).
struct queue_ref {
  queue_id id = queue_id::compute;
  void* native = nullptr;
};

/// A byte range that a task touches, for devices that check.
struct touched {
  space where = space::device;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool write = false;
  bool read = false;
};

/// One unit of work: the device calls `run(context, index, queue)` when its turn comes. Plain
/// pointers, so that submitting allocates nothing. `run` may throw: the device keeps the first
/// exception, skips all later tasks, and rethrows it from `synchronize`.
struct task {
  void (*run)(void* context, std::uint32_t index, queue_ref queue) = nullptr;
  void* context = nullptr;
  std::uint32_t index = 0;
};

/// Marks a point of a queue. Obtained from `record`; valid until the next `reset_events`.
struct event {
  std::uint32_t value = ~std::uint32_t{0};
};

/// Memory in use as the device itself counted it: it sees each lease that is taken and returned.
/// Sizes are rounded up to address_granule; `padding` and `fragmentation` are filled in.
struct usage {
  std::uint64_t peak = 0;                               ///< largest end of a lease
  std::array<std::uint64_t, category_count> at_peak{};  ///< at the first position of the peak
  std::array<std::uint64_t, category_count> maximum{};  ///< each category's own high-water
  std::uint64_t live = 0;                               ///< leases not returned
  bool operator==(usage const&) const = default;
};

/// Work that a queue has done. Devices that ship have `work_of(queue)`; read it after synchronize.
struct work_counts {
  std::uint64_t tasks = 0;
  std::uint64_t copies = 0;
  std::uint64_t copied = 0;  ///< bytes
  bool operator==(work_counts const&) const = default;
};

/// Laws (test/law/device.hpp): work of one queue runs in submission order; a `wait` on an event
/// holds back later work of that queue until everything that was submitted to the event's queue
/// before its `record`, waits included, is done; after a task has thrown no later task starts;
/// nothing runs after `synchronize` returned, and the device is usable again even if it threw;
/// `usage_of` counts as device/ledger.hpp says; reserving and leasing nothing is nothing. One thread
/// issues; tasks issue nothing.
///
/// * `reserve(space, bytes)`: makes the arena of that space at least that large, 4 KiB aligned.
///   Contents are lost. No lease of the space is live and no work is queued. Throws device_error
///   naming space, bytes asked and bytes held; the arena may be gone then.
/// * `base(space)`: its address.
/// * `submit(queue, touched, task)`: appends work. `touched` is only read during the call.
/// * `record(queue)` / `wait(queue, event)`: orders queues. `reset_events()`: after synchronize;
///   waiting on an older event is a contract error.
/// * `copy(queue_ref, dst, src, n)` and `zero(queue_ref, dst, n)`: called from inside a task, with
///   the task's own queue; ranges don't overlap.
/// * `lease(space, offset, bytes, category)` / `release(space, offset, bytes, category)`: the
///   caller's thread, in program order; `settle()` closes a program position: the peak's
///   categories are those of the first settled position that reaches it. Overlapping a live lease,
///   leaving the arena and releasing what is not leased exactly so are contract errors.
/// * `usage_of(space)`; `reset_usage()` starts anew from the live leases.
/// * `synchronize()`: waits for everything, then rethrows the first failure.
/// * `seconds()`: a monotonic clock.
template <class D>
concept device = requires(D& d,
                          D const& c,
                          space s,
                          queue_id q,
                          queue_ref r,
                          std::uint64_t n,
                          std::span<touched const> t,
                          task w,
                          event e,
                          void* to,
                          void const* from,
                          category k) {
  d.reserve(s, n);
  { c.base(s) } -> std::same_as<std::byte*>;
  d.submit(q, t, w);
  { d.record(q) } -> std::same_as<event>;
  d.wait(q, e);
  d.reset_events();
  d.copy(r, to, from, n);
  d.zero(r, to, n);
  d.lease(s, n, n, k);
  d.release(s, n, n, k);
  d.settle();
  { c.usage_of(s) } -> std::same_as<usage>;
  d.reset_usage();
  d.synchronize();
  { c.seconds() } -> std::same_as<double>;
};

/// Whether a task on queue `cpu` may share its work out to further threads. Off by default; a
/// device that runs tasks beside each other anyway turns it on with a static member.
template <class D>
inline constexpr bool threaded_tasks = [] {
  if constexpr (requires { bool{D::threaded_tasks}; }) {
    return bool{D::threaded_tasks};
  } else {
    return false;
  }
}();

/// Tells a device that checks that the caller itself wrote these leased bytes through `base`, while
/// no task that touches them was queued.
template <device D>
void note_written(D& d, space where, std::uint64_t offset, std::uint64_t n) {
  if constexpr (requires { d.written(where, offset, n); }) {
    d.written(where, offset, n);
  } else {
    static_assert(
        !requires { &D::written; },
        "note_written: a device that checks has written(space, std::uint64_t offset, "
        "std::uint64_t bytes)");
  }
}

}  // namespace protrain::inline v0::device
