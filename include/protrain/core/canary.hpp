// SPDX-License-Identifier: Apache-2.0
#pragma once
// Bytes that nobody may write, behind memory that somebody may: what is found changed there was
// written too far.

#include "protrain/core/config.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::core {

/// The `i`-th canary byte. Neighbours differ, so that a copy which runs too far is seen even if it
/// comes from other canaries.
constexpr std::byte canary_at(std::uint64_t i) noexcept {
  return static_cast<std::byte>(0x40U | ((i ^ (i >> 6U) ^ (i >> 12U)) & 0x3FU));
}

/// Canaries `first`, `first` + 1, ...
inline void fill_canary(std::byte* at, std::uint64_t bytes, std::uint64_t first = 0) noexcept {
  for (std::uint64_t i = 0; i < bytes; ++i) {
    at[i] = canary_at(first + i);
  }
}

/// From the first to behind the last byte that was changed, counted from the first canary; empty if
/// none was.
struct canary_damage {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  constexpr std::uint64_t bytes() const noexcept { return end - begin; }
  bool operator==(canary_damage const&) const = default;
};

inline canary_damage damage_of(std::byte const* at,
                               std::uint64_t bytes,
                               std::uint64_t first = 0) noexcept {
  canary_damage out{.begin = bytes, .end = 0};
  for (std::uint64_t i = 0; i < bytes; ++i) {
    if (at[i] != canary_at(first + i)) {
      out.begin = std::min(out.begin, i);
      out.end = i + 1;
    }
  }
  return out.end == 0 ? canary_damage{} : out;
}

}  // namespace protrain::inline v0::core
