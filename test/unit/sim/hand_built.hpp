// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs built by hand, whose times can be counted on paper.

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::test {

/// A program with durations, one row at a time.
struct builder {
  schedule::program program{};
  std::vector<picoseconds> durations{};

  std::uint32_t add(schedule::opcode op,
                    queue_id queue,
                    std::uint64_t ps,
                    std::vector<std::uint32_t> const& after = {},
                    std::uint32_t micro_batch = 0) {
    schedule::instruction i{.op = op, .queue = queue, .micro_batch = micro_batch};
    i.first_dependency = static_cast<std::uint32_t>(program.dependencies.size());
    i.dependency_count = static_cast<std::uint32_t>(after.size());
    for (std::uint32_t const d : after) {
      program.dependencies.push_back(d);
    }
    program.instructions.push_back(i);
    durations.push_back({ps});
    return static_cast<std::uint32_t>(durations.size() - 1);
  }
  sim::timeline run() const { return sim::simulate(program, durations); }
  sim::timeline run(sim::pace const& speeds) const {
    return sim::simulate(program, durations, speeds);
  }
};

inline std::uint64_t of(sim::per_queue<picoseconds> const& values, queue_id q) {
  return values[static_cast<std::size_t>(q)].value;
}

inline std::uint64_t critical(sim::timeline const& t, sim::phase p, queue_id q) {
  return of(t.critical[static_cast<std::size_t>(p)], q);
}

}  // namespace protrain::test
