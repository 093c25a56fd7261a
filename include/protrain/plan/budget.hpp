// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a plan may use.

#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>

namespace protrain::inline v0::plan {

/// Memory of one rank's device and of one host, which its ranks share.
struct budget {
  bytes gpu{};
  bytes host{};
  bytes reserve{};  ///< of `gpu`, left alone
  bool operator==(budget const&) const = default;
};

/// Everything the machine has.
constexpr budget budget_of(hw::machine const& m) {
  return {.gpu = m.device_memory, .host = m.host_memory};
}

/// What programs of one rank may take: the device's budget without reserve and outside memory,
/// and a fair share of the host's.
struct allowance {
  std::uint64_t device = 0;
  std::uint64_t host = 0;
  bool operator==(allowance const&) const = default;
};

constexpr allowance allowance_of(budget const& b, trace::trace const& t, hw::machine const& m) {
  std::uint64_t const taken = checked_add(b.reserve.value, t.outside.value);
  std::uint64_t const local = hw::local_ranks(m, t.job.world);
  return {.device = b.gpu.value > taken ? b.gpu.value - taken : 0, .host = b.host.value / local};
}

}  // namespace protrain::inline v0::plan
