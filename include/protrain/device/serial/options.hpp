// SPDX-License-Identifier: Apache-2.0
#pragma once
// How the serial device orders work, and what it does about a hazard.
// Plain values: the same options and the same calls give the same run.

#include "protrain/core/queue.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::device {

/// Which of the queues whose next task may run goes first.
enum class run_policy : std::uint8_t {
  in_order,     ///< the order of submission
  random,       ///< any, drawn anew for each task
  adversarial,  ///< each `synchronize` draws one hostile habit: starve a queue as long as events
                ///< allow, favour one as long as it can run, newest first, or take turns
};

constexpr std::string_view name_of(run_policy p) noexcept {
  constexpr std::array<std::string_view, 3> names{"in_order", "random", "adversarial"};
  return names[static_cast<std::size_t>(p)];
}

enum class hazard_action : std::uint8_t {
  raise,   ///< `synchronize` throws; work that follows a hazard doesn't run
  record,  ///< everything runs, for those who want to see what a hazard does
};

struct serial_options {
  run_policy order = run_policy::in_order;
  std::uint64_t seed = 0;
  hazard_action on_hazard = hazard_action::raise;
  /// Compare the whole arenas after each task: nothing but declared writes may have changed. Costs
  /// O(arena) a task.
  bool check_writes = false;
  /// What `reserve` grants at most, by space; 0 = what the system has.
  std::array<std::uint64_t, space_count> limit{};
  /// The call of this number (from 1) to reserve, submit, record, wait, copy, zero or synchronize
  /// throws device_error; 0 = none. A failing synchronize has done its work.
  std::uint64_t fail_call = 0;
};

}  // namespace protrain::inline v0::device
