// SPDX-License-Identifier: Apache-2.0
#pragma once
// Address assignment: one deterministic first fit per memory space, in program order, that
// remembers who used a range before, so that reuse becomes a dependency.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// By queue: how many of its instructions are known to be done.
using clock = std::array<std::uint32_t, queue_count>;

constexpr void merge(clock& into, clock const& from) {
  for (std::size_t q = 0; q < queue_count; ++q) {
    into[q] = std::max(into[q], from[q]);
  }
}

/// A dead range and the last instructions that touched it.
struct grave {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
  clock last{};
};

class arena {
 public:
  /// What an allocation gets: an address, and everything that has to be done before its first use.
  struct placement {
    std::uint64_t offset = 0;
    clock before{};
  };

  /// First gap that holds `bytes`, rounded up to a granule. O(live allocations behind the first
  /// gap): what is carried lies before it.
  constexpr placement take(std::uint64_t bytes) {
    std::uint64_t const size = granules(bytes);
    std::size_t i = solid_;
    std::uint64_t at = end_of_solid();
    while (i < live_.size() && live_[i].begin - at < size) {
      at = live_[i].end;
      ++i;
    }
    live_.insert(live_.begin() + static_cast<std::ptrdiff_t>(i), {at, checked_add(at, size)});
    while (solid_ < live_.size() && live_[solid_].begin == end_of_solid()) {
      ++solid_;
    }
    return {at, exhume(at, at + size)};
  }

  /// Ends the allocation at `offset`; `last` are the instructions that touched it.
  constexpr void give(std::uint64_t offset, clock const& last) {
    auto const it = std::ranges::lower_bound(live_, offset, {}, &range::begin);
    PROTRAIN_EXPECT(it != live_.end() && it->begin == offset, "no live allocation there");
    graves_.push_back({it->begin, it->end, last});
    solid_ = std::min(solid_, static_cast<std::size_t>(it - live_.begin()));
    live_.erase(it);
  }

 private:
  struct range {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };

  /// Who used [begin, end) before. Graves inside it are forgotten: whoever comes later is ordered
  /// after the new allocation.
  constexpr clock exhume(std::uint64_t begin, std::uint64_t end) {
    clock before{};
    std::size_t kept = 0;
    for (grave const& g : graves_) {
      bool const touches = g.begin < end && begin < g.end;
      if (touches) {
        merge(before, g.last);
      }
      if (!touches || begin > g.begin || g.end > end) {
        graves_[kept++] = g;
      }
    }
    while (graves_.size() > kept) {
      graves_.pop_back();
    }
    return before;
  }

  constexpr std::uint64_t end_of_solid() const { return solid_ == 0 ? 0 : live_[solid_ - 1].end; }

  std::vector<range> live_;  ///< by address
  std::size_t solid_ = 0;    ///< of them, from the first on, with no gap before or between
  std::vector<grave> graves_;
};

}  // namespace protrain::inline v0::schedule::detail
