// SPDX-License-Identifier: Apache-2.0
#pragma once
// One thread that plays all queues: the hazard microscope. Work runs in `synchronize`, in any order
// that events allow, on poisoned memory, and each access is checked against happens-before.

#include "protrain/device/device.hpp"
#include "protrain/device/serial/detail/serial_class.hpp"  // IWYU pragma: export
#include "protrain/device/serial/detail/serial_run.hpp"

namespace protrain::inline v0::device {

static_assert(device<serial_device>);

}  // namespace protrain::inline v0::device
