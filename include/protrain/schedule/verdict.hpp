// SPDX-License-Identifier: Apache-2.0
#pragma once
// What verify answers: accepted, or the first thing that is wrong with a program.

#include "protrain/core/config.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::schedule {

/// Why a program is refused. The list is closed: there is no other reason.
enum class rejection : std::uint8_t {
  none,
  malformed,           ///< tables or operands contradict each other, the job or the layout
  wrong_queue,         ///< an instruction on a queue that can't run it
  cycle,               ///< a dependency that doesn't point to an earlier instruction
  overlap,             ///< two allocations live at once share bytes
  dead_memory,         ///< an operand of an allocation that isn't live there
  leak,                ///< memory live after the program that isn't carried
  over_budget,         ///< the extent of a space is above its budget
  race,                ///< two conflicting accesses without an order
  not_resident,        ///< a pass finds other bytes than its chunk's values
  wrong_version,       ///< values or state at another version than the instruction names
  missing_input,       ///< an operand that doesn't hold what the instruction needs
  wrong_order,         ///< micro-batches or losses out of order
  wrong_contribution,  ///< a gradient slot of another span, micro-batch or number of blocks
  missing_reduce,
  double_reduce,
  missing_accumulate,
  double_accumulate,
  missing_update,
  double_update,
  frozen_update,
  missing_pass,
  double_pass,
  norm,            ///< the norm misses a chunk, counts one twice or is finished at a wrong time
  missing_result,  ///< a loss or the report isn't where the caller reads it
};
inline constexpr std::size_t rejection_count = 25;

constexpr std::string_view name_of(rejection r) noexcept {
  constexpr std::array<std::string_view, rejection_count> names{"none",
                                                                "malformed",
                                                                "wrong_queue",
                                                                "cycle",
                                                                "overlap",
                                                                "dead_memory",
                                                                "leak",
                                                                "over_budget",
                                                                "race",
                                                                "not_resident",
                                                                "wrong_version",
                                                                "missing_input",
                                                                "wrong_order",
                                                                "wrong_contribution",
                                                                "missing_reduce",
                                                                "double_reduce",
                                                                "missing_accumulate",
                                                                "double_accumulate",
                                                                "missing_update",
                                                                "double_update",
                                                                "frozen_update",
                                                                "missing_pass",
                                                                "double_pass",
                                                                "norm",
                                                                "missing_result"};
  return names[static_cast<std::size_t>(r)];
}

/// The first objection, in the order of the checks. `instruction` is where it shows; `other` is
/// the second instruction of a race, or the allocation, chunk, block or span that `what` names.
struct verdict {
  static constexpr std::uint32_t nowhere = ~std::uint32_t{0};

  bool ok = true;
  rejection reason = rejection::none;
  std::uint32_t instruction = nowhere;
  std::uint32_t other = nowhere;
  char const* what = "";
  constexpr explicit operator bool() const noexcept { return ok; }
  bool operator==(verdict const&) const = default;
};

constexpr verdict reject(rejection reason,
                         char const* what,
                         std::size_t instruction = verdict::nowhere,
                         std::size_t other = verdict::nowhere) noexcept {
  return {.ok = false,
          .reason = reason,
          .instruction = static_cast<std::uint32_t>(instruction),
          .other = static_cast<std::uint32_t>(other),
          .what = what};
}

}  // namespace protrain::inline v0::schedule
