// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happens to a block's saved tensors between forward and backward.

#include "protrain/core/config.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <string_view>

namespace protrain::inline v0::activation {

enum class strategy : std::uint8_t {
  keep,        ///< they stay on the device
  checkpoint,  ///< dropped; rebuilt from the block's input before its backward
  swap,        ///< copied to pinned host memory and back
};

constexpr std::string_view name_of(strategy s) noexcept {
  switch (s) {
    case strategy::keep:
      return "keep";
    case strategy::checkpoint:
      return "checkpoint";
    case strategy::swap:
      return "swap";
  }
  return "unknown";
}

/// What a block type asks for; trace::pin::free leaves the choice to the planner.
using pin = trace::pin;

/// The strategy of a pinned block; `p` is not `free`.
constexpr strategy pinned(pin p) {
  PROTRAIN_EXPECT(p != pin::free, "the block is not pinned");
  return static_cast<strategy>(static_cast<std::uint8_t>(p) - 1);
}

/// Customization point: specialise for a block type to pin its strategy, e.g. a mixture-of-experts
/// block that is always checkpointed. Unspecialised, the planner decides.
template <class Block>
struct strategy_of {
  static constexpr pin value = pin::free;
};

}  // namespace protrain::inline v0::activation
