// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machines that were measured, at random, together as well as alone.

#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "test/support/random_jobs.hpp"

namespace protrain::test {

/// Rates around those at which the random shapes' copies take as long as their compute.
inline hw::machine random_rates(random_source& r) {
  auto const random_rate = [&] { return 1'000'000'000'000 * r.between(1, 40); };
  return {.name = "random",
          .host_to_device = {random_rate()},
          .device_to_host = {random_rate()},
          .copy_latency = {r.chance(50) ? 0 : r.between(1, 400)},
          .device_bandwidth = {random_rate() * 10},
          .host_bandwidth = {random_rate()},
          .collective = {random_rate()}};
}

/// The machine with figures of what it gives together: from a hundredth of the rate alone to a little
/// more than it, three of four known.
inline hw::machine with_contention(random_source& r, hw::machine m) {
  auto const part = [&](bandwidth alone) -> bandwidth {
    std::uint64_t const share = r.between(1, 110);
    return {r.chance(25) ? 0 : mul_div(alone.per_second, share, 100)};
  };
  for (auto const figure : {&hw::concurrent_rates::both_ways,
                            &hw::concurrent_rates::beside_compute,
                            &hw::concurrent_rates::beside_update}) {
    m.concurrent.*figure = {part(m.host_to_device), part(m.device_to_host)};
  }
  m.concurrent.update_beside_copies = part(m.host_bandwidth);
  return m;
}

/// The host with several devices and threads, whose ranks get less at once.
inline hw::machine with_ranks(random_source& r, hw::machine m) {
  m.devices = r.between32(1, 4);
  m.host_threads = r.between32(1, 9);
  m.concurrent.all_ranks = {{mul_div(m.host_to_device.per_second, r.between(20, 100), 100)},
                            {mul_div(m.device_to_host.per_second, r.between(20, 100), 100)}};
  return m;
}

}  // namespace protrain::test
