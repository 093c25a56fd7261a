// SPDX-License-Identifier: Apache-2.0
#pragma once
// Devices with a clock that tests advance, with time stamps, with memory taken outside, with a link
// that ranks share.

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

namespace protrain::test {

/// Time stands still but for `advance`, copies, and looking at it, which take what the rates say.
class clocked_device : public device::serial_device {
 public:
  struct rates {
    picoseconds up_byte{};
    picoseconds down_byte{};
    picoseconds inside_byte{};
    picoseconds latency{};  ///< of copies up and down
    picoseconds tick{};     ///< of `seconds`
  };
  clocked_device() = default;
  explicit clocked_device(rates const& r) : rates_(r) {}

  double seconds() const {
    now_ += rates_.tick;
    return static_cast<double>(now_.value) * 1e-12;
  }
  void advance(picoseconds by) { now_ += by; }

  void copy(device::queue_ref q, void* to, void const* from, std::uint64_t bytes) {
    serial_device::copy(q, to, from, bytes);
    switch (q.id) {
      case queue_id::h2d:
        return advance(rates_.up_byte * bytes + rates_.latency);
      case queue_id::d2h:
        return advance(rates_.down_byte * bytes + rates_.latency);
      default:
        return advance(rates_.inside_byte * bytes);
    }
  }

 private:
  rates rates_{};
  mutable picoseconds now_{};
};

/// Tasks return before their work is done: only stamps know the time, on a clock of their own.
class stamped_device : public clocked_device {
 public:
  std::uint32_t stamp(device::queue_ref q) {
    stamped_on_compute = stamped_on_compute && q.id == queue_id::compute;
    stamps_.push_back(true_now_);
    return static_cast<std::uint32_t>(stamps_.size() - 1);
  }
  double seconds_at(std::uint32_t stamp) const {
    return static_cast<double>(stamps_.at(stamp).value) * 1e-12;
  }
  void reset_stamps() { stamps_.clear(); }
  void work(picoseconds by) { true_now_ += by; }

  bool stamped_on_compute = true;

 private:
  std::vector<picoseconds> stamps_{};
  picoseconds true_now_{};
};

/// A library takes memory beside the arena.
class growing_device : public device::host_device {
 public:
  std::uint64_t outside() const { return outside_.load(); }
  void take(std::uint64_t total) { outside_ = total; }

 private:
  std::atomic<std::uint64_t> outside_{1000};
};

/// Copies between host and device share one link, whoever makes them: each takes so many times
/// longer as there are copies on the way when it starts.
class shared_link_device : public device::host_device {
 public:
  shared_link_device(std::atomic<std::uint32_t>& on_the_way, bandwidth rate)
      : on_the_way_(on_the_way), rate_(rate) {}

  void copy(device::queue_ref q, void* to, void const* from, std::uint64_t bytes) {
    if (q.id != queue_id::h2d && q.id != queue_id::d2h) {
      return host_device::copy(q, to, from, bytes);
    }
    auto const begin = std::chrono::steady_clock::now();
    std::uint32_t const all = ++on_the_way_;
    host_device::copy(q, to, from, bytes);
    auto const ns = static_cast<std::int64_t>(time_of(bytes * all, rate_).value / 1000);
    std::this_thread::sleep_until(begin + std::chrono::nanoseconds(ns));
    --on_the_way_;
  }

 private:
  std::atomic<std::uint32_t>& on_the_way_;
  bandwidth rate_;
};

static_assert(device::device<clocked_device> && device::device<stamped_device>);
static_assert(device::device<growing_device> && device::device<shared_link_device>);

}  // namespace protrain::test
