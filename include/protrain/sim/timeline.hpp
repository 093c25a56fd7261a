// SPDX-License-Identifier: Apache-2.0
#pragma once
// When the instructions of a program start and end on a virtual clock, and the sums over them.

#include "protrain/core/config.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/schedule/program.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace protrain::inline v0::sim {

struct interval {
  picoseconds start{};
  picoseconds end{};
  bool operator==(interval const&) const = default;
};

template <class T>
using per_queue = std::array<T, queue_count>;

/// Parts of a step: forward, backward, and update after the last backward pass. With several
/// micro-batches the first two alternate; each part is the sum of its pieces, and the three add up
/// to the step.
enum class phase : std::uint8_t { forward, backward, update };
inline constexpr std::size_t phase_count = 3;
template <class T>
using per_phase = std::array<T, phase_count>;

constexpr std::string_view name_of(phase p) noexcept {
  constexpr std::array<std::string_view, phase_count> names{"forward", "backward", "update"};
  return names[static_cast<std::size_t>(p)];
}

struct timeline {
  picoseconds finish{};        ///< end of the last instruction
  std::vector<interval> at{};  ///< by instruction
  per_queue<picoseconds> busy{};
  per_queue<picoseconds> exposed{};  ///< busy while `compute` is not; 0 for compute itself
  picoseconds forward_end{};         ///< of the last micro-batch
  picoseconds backward_end{};        ///< likewise
  per_phase<picoseconds> phases{};
  /// Of the chain of instructions that ends last, by phase and queue; they sum to the phases.
  per_phase<per_queue<picoseconds>> critical{};
  bool operator==(timeline const&) const = default;
};

namespace detail {

inline constexpr std::uint32_t no_instruction = ~std::uint32_t{0};

constexpr std::size_t index_of(queue_id q) noexcept { return static_cast<std::size_t>(q); }

struct beginning {
  picoseconds time{};
  std::uint32_t cause = no_instruction;  ///< what it waits for last
};

/// When `i` starts, `previous` being the one before it on its queue: all that it waits for has ended.
constexpr beginning start_of(schedule::program const& p,
                             std::uint32_t i,
                             std::uint32_t previous,
                             std::span<interval const> at) {
  beginning out{.time = previous == no_instruction ? picoseconds{} : at[previous].end,
                .cause = previous};
  for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
    PROTRAIN_EXPECT(d < i, "a dependency is an earlier instruction");
    if (at[d].end > out.time) {
      out = {.time = at[d].end, .cause = d};
    }
  }
  return out;
}

}  // namespace detail

}  // namespace protrain::inline v0::sim
