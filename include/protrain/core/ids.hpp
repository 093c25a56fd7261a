// SPDX-License-Identifier: Apache-2.0
#pragma once
// Strong indices: a chunk is never passed where a block is expected.
// Each is a 32-bit position in a table of the job; `none` marks absence.

#include "protrain/core/config.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace protrain::inline v0::core {

/// Position in the table that `Tag` names. Regular, ordered, trivially copyable.
template <class Tag>
struct id {
  std::uint32_t value = std::numeric_limits<std::uint32_t>::max();

  /// True unless this is the absent id.
  PROTRAIN_HD constexpr bool valid() const noexcept {
    return value != std::numeric_limits<std::uint32_t>::max();
  }
  PROTRAIN_HD constexpr std::size_t index() const noexcept { return value; }
  auto operator<=>(id const&) const = default;
};

using block_id = id<struct block_tag>;              ///< position in execution order
using chunk_id = id<struct chunk_tag>;              ///< position in chunk::layout
using parameter_id = id<struct parameter_tag>;      ///< position in the parameter table
using shape_id = id<struct shape_tag>;              ///< distinct block shape in a trace
using allocation_id = id<struct allocation_tag>;    ///< allocation of a program
using instruction_id = id<struct instruction_tag>;  ///< position in a program
using span_id = id<struct span_tag>;                ///< gradient span of a program

/// The id of table position `i`.
template <class Id>
PROTRAIN_HD constexpr Id make_id(std::size_t i) {
  PROTRAIN_EXPECT(i < std::numeric_limits<std::uint32_t>::max(), "an id is a 32-bit position");
  return Id{static_cast<std::uint32_t>(i)};
}

}  // namespace protrain::inline v0::core
