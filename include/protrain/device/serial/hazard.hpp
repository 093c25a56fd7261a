// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the serial device finds wrong with a sequence of calls: a value for tests, a sentence for
// people.

#include "protrain/core/queue.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>

namespace protrain::inline v0::device {

enum class hazard_kind : std::uint8_t {
  race,           ///< two tasks touch the same bytes, one writes, nothing orders them
  uninitialised,  ///< reads bytes that nothing wrote since they were leased
  not_leased,     ///< touches bytes that are in no live lease, or in more than one
  overrun,        ///< wrote between the end of a lease and its next multiple of 256
  undeclared,     ///< changed or copied bytes that the task did not declare
};

constexpr std::string_view name_of(hazard_kind k) noexcept {
  constexpr std::string_view names[] = {
      "race", "uninitialised", "not_leased", "overrun", "undeclared"};
  return names[static_cast<std::size_t>(k)];
}

/// Absent task of a hazard.
inline constexpr std::uint32_t no_task = std::numeric_limits<std::uint32_t>::max();

struct hazard {
  hazard_kind kind = hazard_kind::race;
  std::uint32_t task = no_task;   ///< `task::index` of the one that is at fault, if known
  std::uint32_t other = no_task;  ///< of a race: the one that was submitted before
  space where = space::device;
  std::uint64_t begin = 0;  ///< first byte
  std::uint64_t end = 0;
  std::string text{};
};

namespace detail {

/// A task as hazards name it.
struct task_point {
  queue_id queue = queue_id::compute;
  std::uint64_t position = 0;  ///< in its queue, from 1; 0 = no task
  std::uint32_t index = no_task;
};

/// Bytes of a space.
struct range {
  space where = space::device;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

inline std::string text_of(range const& r) {
  return std::string(name_of(r.where)) + " bytes [" + std::to_string(r.begin) + ", " +
         std::to_string(r.end) + ")";
}

inline std::string task_text(task_point const& who) {
  return "task " + std::to_string(who.index) + " on queue " + std::string(name_of(who.queue));
}

}  // namespace detail
}  // namespace protrain::inline v0::device
