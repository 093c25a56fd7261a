// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures a machine: what copies, collectives, the CPU optimizer and the device's arithmetic get,
// alone and together.

#include "protrain/comm/communicator.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/profile/detail/prober.hpp"  // IWYU pragma: export
#include "protrain/profile/error.hpp"

#include <exception>
#include <string>

namespace protrain::inline v0::profile {

/// The machine as the ranks of `comm`, all on one host, find it: equal on every rank. First rank 0
/// measures alone, each figure by itself and then beside another, while the others wait; then all
/// ranks copy, update and communicate at once, and the slowest rank counts. Nothing is taken from a
/// datasheet; what can't be measured is in the options. The figure of copies beside others is of
/// pieces that ran while all the others were at work; on device/serial nothing ever does.
///
/// Takes both arenas of the device and returns them; nothing is queued or leased afterwards,
/// whatever happens. Collective; a rank that fails aborts the communicator, so that all throw.
template <device::device Device, comm::communicator Comm>
hw::machine probe(Device& device, Comm& comm, probe_options const& options = {}) {
  PROTRAIN_EXPECT(options.copy >= detail::prober_least, "probe: a copy has at least 4 KiB");
  PROTRAIN_EXPECT(options.update > 0, "probe: the CPU optimizer needs an element");
  PROTRAIN_EXPECT(options.repetitions > 0, "probe: each figure needs a repetition");
  PROTRAIN_EXPECT(!options.collectives.empty(), "probe: collectives need a size");
  try {
    return detail::prober<Device, Comm>(device, comm, options).run();
  } catch (std::exception const& e) {
    comm.abort(std::string("probe: ") + e.what());
    throw;
  }
}

}  // namespace protrain::inline v0::profile
