// SPDX-License-Identifier: Apache-2.0
#pragma once
// Devices that misbehave: one whose n-th call, of a kind or of any, fails, one whose queue stops.

#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/timed.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::test {

/// Calls that may fail; `reserve_host` is of pinned memory.
enum class device_call : std::uint8_t {
  reserve_device,
  reserve_host,
  submit,
  record,
  wait,
  copy,
  zero,
  synchronize,
};
inline constexpr std::size_t device_call_count = 8;

constexpr std::string_view name_of(device_call c) noexcept {
  constexpr std::array<std::string_view, device_call_count> names{"reserve of device memory",
                                                                  "reserve of pinned host memory",
                                                                  "submit",
                                                                  "record",
                                                                  "wait",
                                                                  "copy",
                                                                  "zero",
                                                                  "synchronize"};
  return names[static_cast<std::size_t>(c)];
}

/// A host device. The n-th call of one kind since `fail`, or of any since `fail_any`, throws; 0 =
/// none. A synchronize that fails has done its work.
class faulty_device {
 public:
  void fail(device_call what, std::uint64_t nth) {
    what_ = what;
    fail_at_ = nth;
    fail_any(0);
  }
  void fail_any(std::uint64_t nth) {
    fail_at_ = nth > 0 ? 0 : fail_at_;
    fail_any_at_ = nth;
    all_ = 0;
    for (auto& c : counts_) {
      c = 0;
    }
  }
  std::uint64_t calls(device_call what) const { return counts_[static_cast<std::size_t>(what)]; }
  std::uint64_t calls() const { return all_; }

  void reserve(space where, std::uint64_t bytes) {
    count(where == space::device ? device_call::reserve_device : device_call::reserve_host);
    inner_.reserve(where, bytes);
  }
  std::byte* base(space where) const { return inner_.base(where); }
  void submit(queue_id q, std::span<device::touched const> declared, device::task work) {
    count(device_call::submit);
    inner_.submit(q, declared, work);
  }
  device::event record(queue_id q) {
    count(device_call::record);
    return inner_.record(q);
  }
  void wait(queue_id q, device::event e) {
    count(device_call::wait);
    inner_.wait(q, e);
  }
  void reset_events() { inner_.reset_events(); }
  void copy(device::queue_ref q, void* to, void const* from, std::uint64_t bytes) {
    count(device_call::copy);
    inner_.copy(q, to, from, bytes);
  }
  void zero(device::queue_ref q, void* to, std::uint64_t bytes) {
    count(device_call::zero);
    inner_.zero(q, to, bytes);
  }
  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    inner_.lease(where, offset, bytes, what);
  }
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    inner_.release(where, offset, bytes, what);
  }
  void settle() { inner_.settle(); }
  device::usage usage_of(space where) const { return inner_.usage_of(where); }
  void reset_usage() { inner_.reset_usage(); }
  void synchronize() {
    inner_.synchronize();
    count(device_call::synchronize);
  }
  double seconds() const { return inner_.seconds(); }

 private:
  void count(device_call what) {
    std::uint64_t const n = ++counts_[static_cast<std::size_t>(what)];
    std::uint64_t const among_all = ++all_;
    bool const of_kind = what == what_ && n == fail_at_;
    if (of_kind || among_all == fail_any_at_) {
      throw device::device_error(
          name_of(what), "injected fault at call " + std::to_string(of_kind ? n : among_all));
    }
  }

  device::host_device inner_{};
  device_call what_ = device_call::submit;
  std::uint64_t fail_at_ = 0;
  std::uint64_t fail_any_at_ = 0;
  std::atomic<std::uint64_t> all_{0};
  std::array<std::atomic<std::uint64_t>, device_call_count> counts_{};
};
static_assert(device::device<faulty_device>);

/// A host device whose n-th task from `stop` on doesn't begin, nor what follows it on its queue,
/// until `go_on`.
class stopping_device : public device::host_device {
 public:
  stopping_device() = default;
  stopping_device(stopping_device const&) = delete;
  stopping_device& operator=(stopping_device const&) = delete;
  ~stopping_device() { go_on(); }

  void stop(std::uint64_t nth) { stop_at_ = submitted_ + nth; }
  void go_on() {
    std::lock_guard const lock(mutex_);
    open_ = true;
    opened_.notify_all();
  }
  std::uint64_t submitted() const { return submitted_; }

  void submit(queue_id q, std::span<device::touched const> declared, device::task work) {
    if (++submitted_ != stop_at_) {
      device::host_device::submit(q, declared, work);
      return;
    }
    held_ = work;
    device::host_device::submit(q, declared, {&stopping_device::hold, this, work.index});
  }

 private:
  static void hold(void* self, std::uint32_t index, device::queue_ref queue) {
    auto& own = *static_cast<stopping_device*>(self);
    {
      std::unique_lock lock(own.mutex_);
      own.opened_.wait(lock, [&] { return own.open_; });
    }
    own.held_.run(own.held_.context, index, queue);
  }

  std::uint64_t submitted_ = 0;
  std::uint64_t stop_at_ = 0;
  device::task held_{};
  std::mutex mutex_{};
  std::condition_variable opened_{};
  bool open_ = false;
};
static_assert(device::timed_device<stopping_device>);

}  // namespace protrain::test
