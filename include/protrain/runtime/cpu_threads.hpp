// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many threads an engine's CPU work has, and what planning is told of it.

#include "protrain/comm/communicator.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/processors.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/runtime/engine_options.hpp"

#include <algorithm>
#include <cstdint>

namespace protrain::inline v0::runtime {

/// Threads of an engine's CPU work. A device whose tasks are not to be threaded has one.
template <device::device Device, comm::communicator Comm>
std::uint32_t threads_of(engine_options const& o, Comm const& comm) {
  if constexpr (!device::threaded_tasks<Device>) {
    return 1;
  } else if (o.threads != 0) {
    return o.threads;
  } else {
    std::uint32_t const ranks = o.local_ranks != 0 ? o.local_ranks : comm::local_ranks(comm);
    return device::thread_share(device::processors_here(), ranks);
  }
}

/// The machine as planning should see it where a process may use only these of its processors.
/// Every rank needs the same answer, or they plan differently: where hosts differ, take the least.
constexpr hw::machine limited_to(hw::machine m, device::processors const& p) {
  m.usable_threads = std::min(p.usable(), m.host_threads);
  return m;
}

}  // namespace protrain::inline v0::runtime
