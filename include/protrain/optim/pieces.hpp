// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a range of elements is cut for several threads. Cuts are at multiples of the granule, where
// nothing that the optimizer computes can see them.

#include "protrain/core/config.hpp"
#include "protrain/core/math.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>

namespace protrain::inline v0::optim {

/// Elements [begin, end).
struct element_range {
  std::uint64_t begin = 0;
  std::uint64_t end = std::numeric_limits<std::uint64_t>::max();

  constexpr std::uint64_t size() const noexcept { return end - begin; }
  bool operator==(element_range const&) const = default;
};

/// Fewer elements than this are not worth waking a thread for: some 50 us of one core's work,
/// where waking and waiting take 10 to 20.
inline constexpr std::uint64_t fewest_per_thread = 1U << 15U;

/// Pieces that `n` elements are worth: at least 1, at most one for each thread.
constexpr std::uint32_t pieces_of(std::uint64_t n, std::uint32_t threads) noexcept {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(n / fewest_per_thread, 1, std::max(1U, threads)));
}

/// Piece `index` of `pieces` of `n` elements, in order and as equal as granules allow; one may be
/// empty. index < pieces.
constexpr element_range piece_of(std::uint64_t n, std::uint32_t pieces, std::uint32_t index) {
  PROTRAIN_EXPECT(index < pieces, "piece_of: there is no such piece");
  std::uint64_t const whole = ceil_div(n, element_granule);
  std::uint64_t const each = whole / pieces;
  std::uint64_t const rest = whole % pieces;  // the first ones have a granule more
  auto const start = [&](std::uint64_t i) {
    return std::min(n, (each * i + std::min(i, rest)) * element_granule);
  };
  return {start(index), start(std::uint64_t{index} + 1)};
}

}  // namespace protrain::inline v0::optim
