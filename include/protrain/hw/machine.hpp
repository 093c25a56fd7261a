// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as a value: capacities and achievable rates. Every rate is what a program gets, not
// what a datasheet says; `source` says where the numbers are from.

#include "protrain/core/dtype.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"

#include <cstdint>

namespace protrain::inline v0::hw {

struct machine {
  text name{};
  text source{};                   ///< where the figures come from
  std::uint32_t devices = 1;       ///< ranks on this host
  bytes device_memory{};           ///< per device
  bytes host_memory{};             ///< of the host, shared by its ranks
  bandwidth host_to_device{};      ///< pinned, alone
  bandwidth device_to_host{};      ///< pinned, alone
  picoseconds copy_latency{};      ///< added to each copy
  bandwidth device_bandwidth{};    ///< bytes read plus bytes written on the device
  bandwidth host_bandwidth{};      ///< bytes read plus bytes written by the CPU optimizer
  std::uint32_t host_threads = 1;  ///< for host tasks
  flop_rate compute_fp32{};        ///< dense, achievable
  flop_rate compute_half{};        ///< bf16 and fp16, dense, achievable
  bandwidth collective{};          ///< all-gather and reduce-scatter bytes per rank
  bool operator==(machine const&) const = default;
};

/// Achievable dense rate for products of `type`.
constexpr flop_rate compute_rate(machine const& m, dtype type) noexcept {
  return type == dtype::bf16 || type == dtype::f16 ? m.compute_half : m.compute_fp32;
}

}  // namespace protrain::inline v0::hw
