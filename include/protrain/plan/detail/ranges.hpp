// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranges of knobs, and the numbers that a job's facts suggest for them.

#include "protrain/core/ids.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan {

/// A range of one knob.
struct axis {
  std::uint32_t low = 0;
  std::uint32_t high = 0;
  bool operator==(axis const&) const = default;
};

/// What a placement was made from.
struct placement_numbers {
  std::uint32_t base = 0;  ///< position of the persistence among the space's
  std::uint32_t persist = 0;
  std::uint32_t moving = 0;    ///< chunks that train and aren't persistent
  std::uint32_t streamed = 0;  ///< of those
  std::uint32_t defer = 0;     ///< likewise
  bool operator==(placement_numbers const&) const = default;
};

namespace detail {

/// `wanted` within [low, high].
constexpr std::uint32_t clamp(std::uint64_t wanted, std::uint32_t low, std::uint32_t high) {
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(wanted, low, std::max(low, high)));
}

/// The paper's interval: blocks that run while one is swapped out, of the shape most blocks have.
constexpr std::uint32_t swap_interval(trace::trace const& t,
                                      cost::rates const& r,
                                      std::uint32_t most) {
  std::vector<std::uint32_t> count(t.shapes.size(), 0);
  for (shape_id const s : t.blocks) {
    count[s.index()] += t.shapes[s.index()].pinned == trace::pin::free ? 1U : 0U;
  }
  std::size_t best = 0;
  for (std::size_t s = 1; s < count.size(); ++s) {
    best = count[s] > count[best] ? s : best;
  }
  trace::block_shape const& body = t.shapes[best];
  return cost::swap_interval(cost::download_time(r, body.saved.value), body.forward, most);
}

/// A swapped block comes back early enough: its copy takes `interval` forward passes, and a
/// backward pass takes about two.
constexpr std::uint32_t swap_ahead(std::uint32_t interval) noexcept {
  return std::max<std::uint32_t>(1, interval / 2 + interval % 2);
}

}  // namespace detail

}  // namespace protrain::inline v0::plan
