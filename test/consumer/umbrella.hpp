// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a foreign program includes of an installed protrain: all of it, or planning alone.

#if defined(CONSUMER_PLANS_ONLY)
#include <protrain/planning.hpp>
#else
#include <protrain/protrain.hpp>
#endif

#include <cstdint>

namespace consumer {

/// A row of blocks, made in the other translation unit.
protrain::trace::trace row_of_blocks(std::uint32_t blocks);

/// What the other translation unit says of the same job.
protrain::picoseconds predicted(protrain::trace::trace const& t);

/// Installs a handler of that unit.
void install_handler();
bool is_installed(protrain::violation_handler h);

}  // namespace consumer
