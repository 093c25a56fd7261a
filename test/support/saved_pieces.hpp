// SPDX-License-Identifier: Apache-2.0
#pragma once
// How synthetic blocks cut what they save into tensors, and which of these their save levels drop:
// level k the last k.

#include "protrain/core/math.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>

namespace protrain::test {

/// The piece `i` of `total` bytes in granules: half of what is left, three at most, the first two a
/// little less than their granules. 0 when nothing is left.
inline std::uint64_t piece(std::uint64_t total, std::uint32_t i) {
  PROTRAIN_EXPECT(total % address_granule == 0, "saved bytes and scratch come in granules");
  std::uint64_t left = total / address_granule;
  for (std::uint32_t k = 0; k < i && k < 2; ++k) {
    left -= ceil_div(left, 2);
  }
  if (i > 2 || left == 0) {
    return 0;
  }
  return i == 2 ? left * address_granule : ceil_div(left, 2) * address_granule - (3 + i);
}

/// Pieces of `total` bytes.
inline std::uint32_t pieces(std::uint64_t total) {
  std::uint32_t n = 0;
  while (piece(total, n) > 0) {
    ++n;
  }
  return n;
}

/// The first level at which piece `i` is dropped, of a block with `levels`; 0: never.
inline std::uint32_t dropped_from(std::uint64_t total, std::uint32_t i, std::uint32_t levels) {
  std::uint32_t const level = pieces(total) - i;
  return level <= levels ? level : 0;
}

/// Gives `s` the levels of a synthetic block, whose rebuilds take `scratch` bytes and `time` each.
/// A rebuild of the first piece reads x; others do if `reads_input`.
inline void add_levels(trace::block_shape& s,
                       std::uint32_t levels,
                       bytes scratch,
                       picoseconds time,
                       bool reads_input) {
  std::uint32_t const all = pieces(s.saved.value);
  levels = std::min(levels, all);
  for (std::uint32_t k = 1; k <= levels; ++k) {
    trace::save_level level{.name = "level ",
                            .scratch = scratch,
                            .reads_input = reads_input || k == all,
                            .rebuild = time * k};
    level.name += std::uint64_t{k};
    for (std::uint32_t i = 0; i < all; ++i) {
      (i + k >= all ? level.rebuilt : level.saved) += bytes{granules(piece(s.saved.value, i))};
    }
    s.levels.push_back(level);
  }
}

}  // namespace protrain::test
