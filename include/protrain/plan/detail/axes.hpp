// SPDX-License-Identifier: Apache-2.0
#pragma once
// Values of one knob: all of them, every n-th, or those around one.

#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Every `stride`-th value of an axis, and its last.
constexpr std::vector<std::uint32_t> values(axis const& a, std::uint32_t stride) {
  std::vector<std::uint32_t> out{};
  for (std::uint64_t n = a.low; n < a.high; n += stride) {
    out.push_back(static_cast<std::uint32_t>(n));
  }
  out.push_back(a.high);
  return out;
}

/// `n` and its neighbours at distance `reach`, or the ends of the axis.
constexpr std::vector<std::uint32_t> around(std::uint32_t n, axis const& a, std::uint32_t reach) {
  std::vector<std::uint32_t> out{n};
  if (n > a.low) {
    out.push_back(n - std::min(reach, n - a.low));
  }
  if (n < a.high) {
    out.push_back(n + std::min(reach, a.high - n));
  }
  return out;
}

constexpr void insert_sorted(std::vector<std::size_t>& list, std::size_t value) {
  auto const at = std::ranges::lower_bound(list, value);
  if (at == list.end() || *at != value) {
    list.insert(at, value);
  }
}

}  // namespace protrain::inline v0::plan::detail
