// SPDX-License-Identifier: Apache-2.0
#pragma once
// How much work a search may do before it settles for what it has.

#include "protrain/core/config.hpp"

#include <cstdint>

namespace protrain::inline v0::plan {

/// How much a search may do. A search that meets a limit answers with what it has found, and says
/// that it isn't proven. There are up to three, each with all of this: without streamed updates, with
/// them, and with save levels.
struct limits {
  std::uint32_t programs = 3000;           ///< compiled best first
  std::uint32_t refinements = 100;         ///< compiled on each way up from a promising one
  std::uint64_t instructions = 1U << 19U;  ///< of all of them
  std::uint32_t candidates = 1U << 20U;    ///< bounds computed
  bool operator==(limits const&) const = default;
};

}  // namespace protrain::inline v0::plan
