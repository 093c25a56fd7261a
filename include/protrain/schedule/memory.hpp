// SPDX-License-Identifier: Apache-2.0
#pragma once
// The peak of a program in one memory space, and what it consists of. Exact: addresses are part of
// the program.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace protrain::inline v0::schedule {

/// Bytes of one space.
struct memory_report {
  std::uint64_t peak = 0;  ///< largest end of an allocation, each rounded up to a granule
  /// Bytes as asked for, live at `position`; padding is what rounding adds, fragmentation what
  /// lies below the peak and belongs to nobody. They sum to `peak` exactly.
  std::array<std::uint64_t, category_count> at_peak{};
  /// Each category's own high-water over all positions. Padding and fragmentation too, the latter
  /// below the largest end that is live then.
  std::array<std::uint64_t, category_count> maximum{};
  std::uint32_t position = 0;  ///< first instruction at which the largest live end is the peak
  bool operator==(memory_report const&) const = default;
};

namespace detail {

/// Walks positions in order and keeps what is live. Ends come before begins at one position.
class memory_sweep {
 public:
  memory_report report{};

  constexpr void add(allocation const& a) {
    std::uint64_t const size = granules(a.bytes);
    live_[static_cast<std::size_t>(a.what)] += a.bytes;
    live_[padding] += size - a.bytes;
    rounded_ += size;
    ends_.push_back({a.offset + size, a.end});
    std::ranges::push_heap(ends_, lower);
  }
  constexpr void remove(allocation const& a) {
    std::uint64_t const size = granules(a.bytes);
    live_[static_cast<std::size_t>(a.what)] -= a.bytes;
    live_[padding] -= size - a.bytes;
    rounded_ -= size;
  }
  /// Everything that begins or ends at `position` has been added or removed.
  constexpr void settle(std::uint32_t position) {
    while (!ends_.empty() && ends_.front().until <= position) {
      std::ranges::pop_heap(ends_, lower);
      ends_.pop_back();
    }
    std::uint64_t const top = ends_.empty() ? 0 : ends_.front().address;
    live_[fragmentation] = top - rounded_;
    for (std::size_t c = 0; c < category_count; ++c) {
      report.maximum[c] = std::max(report.maximum[c], live_[c]);
    }
    if (top > report.peak) {
      report.peak = top;
      report.position = position;
      report.at_peak = live_;
    }
  }

 private:
  struct live_end {
    std::uint64_t address = 0;
    std::uint32_t until = 0;
  };
  static constexpr bool lower(live_end const& a, live_end const& b) {
    return a.address < b.address;
  }
  static constexpr auto padding = static_cast<std::size_t>(category::padding);
  static constexpr auto fragmentation = static_cast<std::size_t>(category::fragmentation);

  std::array<std::uint64_t, category_count> live_{};
  std::uint64_t rounded_ = 0;
  std::vector<live_end> ends_{};  // heap by address; those that ended leave when they surface
};

/// An allocation begins or ends.
struct memory_event {
  std::uint32_t position = 0;
  bool begins = false;
  std::uint32_t allocation = 0;
  auto operator<=>(memory_event const&) const = default;
};

}  // namespace detail

/// The peak of `p` in space `where`. O(n log n) in allocations. `p` is a program that verify
/// accepts.
constexpr memory_report memory_of(program const& p, space where) {
  std::vector<detail::memory_event> events{};
  for (std::uint32_t i = 0; i < p.allocations.size(); ++i) {
    if (p.allocations[i].where == where) {
      events.push_back({p.allocations[i].begin, true, i});
      events.push_back({p.allocations[i].end, false, i});
    }
  }
  std::ranges::sort(events);
  detail::memory_sweep sweep{};
  for (std::size_t i = 0; i < events.size(); ++i) {
    allocation const& a = p.allocations[events[i].allocation];
    if (events[i].begins) {
      sweep.add(a);
    } else {
      sweep.remove(a);
    }
    if (i + 1 == events.size() || events[i + 1].position != events[i].position) {
      sweep.settle(events[i].position);
    }
  }
  return sweep.report;
}

/// Two programs one after the other, as a ledger sees them: the first position of the larger peak
/// counts, in its own program.
constexpr void follow(memory_report& before, memory_report const& after) {
  if (after.peak > before.peak) {
    before.peak = after.peak;
    before.at_peak = after.at_peak;
    before.position = after.position;
  }
  for (std::size_t c = 0; c < category_count; ++c) {
    before.maximum[c] = after.maximum[c] > before.maximum[c] ? after.maximum[c] : before.maximum[c];
  }
}

}  // namespace protrain::inline v0::schedule
