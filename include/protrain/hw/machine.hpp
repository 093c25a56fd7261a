// SPDX-License-Identifier: Apache-2.0
#pragma once
// A machine as a value: capacities and achievable rates. Every rate is what a program gets, not
// what a datasheet says; `source` says where the numbers are from.

#include "protrain/core/dtype.hpp"
#include "protrain/core/math.hpp"
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

/// What data sheets promise; for comparing only, no plan reads them. A rate of 0 isn't known.
struct peak_rates {
  flop_rate fp32{};
  flop_rate half{};  ///< bf16 with fp32 sums
  bandwidth device_memory{};
  bandwidth link{};  ///< to the host, each way
  text source{};     ///< of whom, and whether products are dense or sparse
  bool operator==(peak_rates const&) const = default;
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
  bandwidth host_bandwidth{};        ///< bytes read plus bytes written by the CPU optimizer...
  std::uint32_t host_threads = 1;    ///< ...on this many threads, all ranks together
  std::uint32_t usable_threads{};    ///< of these, what the job may use of this host; 0 = all
  flop_rate compute_fp32{};          ///< dense, achievable
  flop_rate compute_half{};          ///< bf16 and fp16, dense, achievable
  bandwidth collective{};            ///< all-gather and reduce-scatter bytes per rank
  picoseconds collective_latency{};  ///< added to each collective; 0 means `copy_latency`
  concurrent_rates concurrent{};
  std::uint32_t hosts = 1;  ///< of this kind; `collective` is what a rank gets across all of them
  peak_rates peak{};
  bool operator==(machine const&) const = default;
};

/// One rank for each device of all hosts.
constexpr std::uint64_t all_ranks(machine const& m) noexcept {
  return std::uint64_t{std::max(1U, m.devices)} * std::max(1U, m.hosts);
}

/// Ranks of a job of `world` that share this host.
constexpr std::uint32_t local_ranks(machine const& m, std::uint64_t world) noexcept {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(world, 1, std::max(1U, m.devices)));
}

/// Threads that can run at once on this host, at least 1.
constexpr std::uint64_t usable_threads(machine const& m) noexcept {
  std::uint32_t const most = m.usable_threads == 0 ? m.host_threads : m.usable_threads;
  return std::max(1U, std::min(most, m.host_threads));
}

/// Threads of each rank's CPU optimizer: a fair share, at least one, as `device::thread_share`.
constexpr std::uint64_t threads_of_rank(machine const& m, std::uint32_t ranks) noexcept {
  return std::max<std::uint64_t>(1, usable_threads(m) / std::max(1U, ranks));
}

/// What one of `ranks` ranks gets of `whole`, a rate of the host's memory by all threads: in
/// proportion to the threads that run. More of them than processors share those. Memory that fewer
/// threads fill as well is given away, never invented. Positive if `whole` is.
constexpr bandwidth share_of_rank(machine const& m, bandwidth whole, std::uint32_t ranks) {
  std::uint64_t const n = std::max(1U, ranks);
  std::uint64_t const running = std::min(n * threads_of_rank(m, ranks), usable_threads(m));
  std::uint64_t const all = n * std::max(1U, m.host_threads);
  std::uint64_t const share = mul_div(whole.per_second, running, all);
  return {std::max(share, std::min<std::uint64_t>(whole.per_second, 1))};
}

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

/// What bounds the copies of one of `world` ranks (for `beside`): where several share the host, the
/// rates of all ranks at once, as those of fewer are not known.
constexpr copy_rates copies_of_rank(machine const& m, std::uint64_t world) noexcept {
  return local_ranks(m, world) > 1 ? m.concurrent.all_ranks : copy_rates{};
}

}  // namespace protrain::inline v0::hw
