// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as a value: capacities and achievable rates. Every rate is what a program gets, not
// what a datasheet says; `source` says where the numbers are from.

#include "protrain/core/dtype.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"

#include <algorithm>
#include <cstdint>

namespace protrain::inline v0::hw {

/// Rates of pinned copies.
struct copy_rates {
  bandwidth host_to_device{};
  bandwidth device_to_host{};
  bool operator==(copy_rates const&) const = default;
};

/// What a rank gets while something else runs; a rate of 0 is not known, and taken to be the rate
/// alone. None is above it (`beside`).
struct concurrent_rates {
  copy_rates both_ways{};            ///< of copies up and down at once
  copy_rates beside_compute{};       ///< of copies one way, while the device computes
  copy_rates beside_update{};        ///< of copies one way, while the CPU optimizer runs
  copy_rates all_ranks{};            ///< of copies one way, on all ranks of the host at once
  bandwidth update_beside_copies{};  ///< of the CPU optimizer, while copies go both ways
  bool operator==(concurrent_rates const&) const = default;
};

struct machine {
  text name{};
  text source{};                     ///< where the figures come from
  std::uint32_t devices = 1;         ///< ranks on this host
  bytes device_memory{};             ///< per device
  bytes host_memory{};               ///< of the host, shared by its ranks
  bandwidth host_to_device{};        ///< pinned, alone
  bandwidth device_to_host{};        ///< pinned, alone
  picoseconds copy_latency{};        ///< added to each copy
  bandwidth device_bandwidth{};      ///< bytes read plus bytes written on the device
  bandwidth host_bandwidth{};        ///< bytes read plus bytes written by the CPU optimizer
  std::uint32_t host_threads = 1;    ///< for host tasks
  flop_rate compute_fp32{};          ///< dense, achievable
  flop_rate compute_half{};          ///< bf16 and fp16, dense, achievable
  bandwidth collective{};            ///< all-gather and reduce-scatter bytes per rank
  picoseconds collective_latency{};  ///< added to each collective; 0 means `copy_latency`
  concurrent_rates concurrent{};
  bool operator==(machine const&) const = default;
};

/// Achievable dense rate for products of `type`.
constexpr flop_rate compute_rate(machine const& m, dtype type) noexcept {
  return type == dtype::bf16 || type == dtype::f16 ? m.compute_half : m.compute_fp32;
}

/// A rate beside something else: at most the one alone, which it is where it isn't known.
constexpr bandwidth beside(bandwidth alone, bandwidth together) noexcept {
  return together.per_second == 0 ? alone : std::min(alone, together);
}

constexpr picoseconds collective_latency(machine const& m) noexcept {
  return m.collective_latency.value == 0 ? m.copy_latency : m.collective_latency;
}

/// Ranks of a job of `world` that share this host.
constexpr std::uint32_t local_ranks(machine const& m, std::uint64_t world) noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(world, 1, std::max(1U, m.devices)));
}

/// What bounds the copies of one of `world` ranks (for `beside`): where several share the host, the
/// rates of all ranks at once, as those of fewer are not known.
constexpr copy_rates copies_of_rank(machine const& m, std::uint64_t world) noexcept {
  return local_ranks(m, world) > 1 ? m.concurrent.all_ranks : copy_rates{};
}

}  // namespace protrain::inline v0::hw
