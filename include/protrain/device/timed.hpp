// SPDX-License-Identifier: Apache-2.0
#pragma once
// Devices that can wait for a limited time, so that whoever waits can look at what hangs.

#include "protrain/device/device.hpp"

#include <chrono>
#include <concepts>

namespace protrain::inline v0::device {

/// Optional. `synchronize_for(t)`: as `synchronize`, but answers false once `t` is over and work is
/// still queued; that work goes on, and nothing was rethrown. Law (test/unit/device): true, or an
/// exception, means what a return from `synchronize` means.
template <class D>
concept timed_device = device<D> && requires(D& d, std::chrono::nanoseconds t) {
  { d.synchronize_for(t) } -> std::same_as<bool>;
};

}  // namespace protrain::inline v0::device
