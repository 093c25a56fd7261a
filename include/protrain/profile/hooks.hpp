// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a device may tell a profiler beyond the device concept: when its queues came past a point,
// and how much of its memory others have taken.

#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::profile {

/// For devices whose tasks return before their work is done. `stamp(queue)`, called from inside a
/// task with its queue, marks a point of the queue; `seconds_at(stamp)`, after `synchronize`, says
/// when the queue came past it, on one clock for all queues; `reset_stamps()` makes all stamps
/// invalid. Any other device is timed by `seconds()` inside its tasks.
template <class D>
concept stamps_queues = requires(D& d, D const& c, device::queue_ref q, std::uint32_t stamp) {
  { d.stamp(q) } -> std::same_as<std::uint32_t>;
  { c.seconds_at(stamp) } -> std::same_as<double>;
  d.reset_stamps();
};

/// `outside()`: bytes of device memory that are taken now, but not for the device's arena: contexts,
/// handles, workspaces of other libraries, the program's own allocations.
template <class D>
concept counts_outside = requires(D const& c) {
  { c.outside() } -> std::same_as<std::uint64_t>;
};

namespace detail {

/// Points of queues, and the time between them.
template <device::device Device>
class stopwatch {
 public:
  using mark = std::conditional_t<stamps_queues<Device>, std::uint32_t, double>;

  explicit stopwatch(Device& d) : device_(&d) {}

  /// From inside a task.
  mark now(device::queue_ref q) {
    if constexpr (stamps_queues<Device>) {
      return device_->stamp(q);
    } else {
      static_cast<void>(q);
      return device_->seconds();
    }
  }
  /// After `synchronize`.
  double seconds(mark m) const {
    if constexpr (stamps_queues<Device>) {
      return device_->seconds_at(m);
    } else {
      return m;
    }
  }
  void reset() {
    if constexpr (stamps_queues<Device>) {
      device_->reset_stamps();
    }
  }

 private:
  Device* device_;
};

/// Rounded; 0 where the clock went back.
inline picoseconds between(double begin, double end) {
  return {end > begin ? static_cast<std::uint64_t>(std::llround((end - begin) * 1e12)) : 0};
}

/// Of a device that can't tell, 0.
template <device::device Device>
std::uint64_t outside_of(Device const& d) {
  if constexpr (counts_outside<Device>) {
    return d.outside();
  } else {
    static_cast<void>(d);
    return 0;
  }
}

}  // namespace detail
}  // namespace protrain::inline v0::profile
