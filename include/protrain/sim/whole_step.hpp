// SPDX-License-Identifier: Apache-2.0
#pragma once
// The time of a step that is cut into several programs: each waits for the end of the one before.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/sim/simulate.hpp"

#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::sim {

/// Sums over the programs of one step, in the order in which they run.
struct whole_step {
  picoseconds iteration{};  ///< time of one step among equal steps
  per_phase<picoseconds> phases{};
  per_queue<picoseconds> busy{};
  per_queue<picoseconds> exposed{};
  per_phase<per_queue<picoseconds>> critical{};
  bool operator==(whole_step const&) const = default;

  /// A program that runs `times` times.
  constexpr void add(timeline const& t, std::uint64_t times = 1) {
    iteration += t.finish * times;
    for (std::size_t q = 0; q < queue_count; ++q) {
      busy[q] += t.busy[q] * times;
      exposed[q] += t.exposed[q] * times;
      for (std::size_t k = 0; k < phase_count; ++k) {
        critical[k][q] += t.critical[k][q] * times;
      }
    }
    for (std::size_t k = 0; k < phase_count; ++k) {
      phases[k] += t.phases[k] * times;
    }
  }
};

/// The queue that a phase mostly waits for: the largest share of the critical chains.
constexpr queue_id bound_by(whole_step const& s, phase p) {
  return largest_share(s.critical[static_cast<std::size_t>(p)]);
}
/// The same for the whole step.
constexpr queue_id bound_by(whole_step const& s) { return largest_share(sum_of(s.critical)); }

}  // namespace protrain::inline v0::sim
