// SPDX-License-Identifier: Apache-2.0
#pragma once
// Reserves what the programs of a job need at most.

#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/memory_error.hpp"
#include "protrain/schedule/holders.hpp"
#include "protrain/schedule/memory.hpp"

namespace protrain::inline v0::runtime::detail {

/// Both arenas. A refusal says who would have held the bytes.
template <device::device Device>
void reserve_arenas(Device& d, plan_parts const& parts) {
  for (space const s : {space::device, space::host}) {
    schedule::program const& p = parts.programs[schedule::peak_program(parts.programs, s)];
    try {
      d.reserve(s, schedule::memory_of(p, s).peak);
    } catch (device::device_error const& e) {
      throw memory_error(e, schedule::holders_at_peak(p, s), parts.facts);
    }
  }
}

}  // namespace protrain::inline v0::runtime::detail
