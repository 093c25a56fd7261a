// SPDX-License-Identifier: Apache-2.0
#pragma once
// The count of memory that is independent of any program: a device writes down each lease that it
// sees taken and returned, and knows nothing of what was predicted.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

namespace protrain::inline v0::device {
namespace detail {

/// The leases of one space.
class space_ledger {
 public:
  void lease(std::uint64_t offset, std::uint64_t bytes, category what) {
    PROTRAIN_EXPECT(offset % address_granule == 0, "lease: the offset is no multiple of 256");
    PROTRAIN_EXPECT(what != category::padding && what != category::fragmentation,
                    "lease: padding and fragmentation are derived, never leased");
    if (bytes == 0) {
      return;
    }
    std::uint64_t const end = checked_add(offset, granules(bytes));
    auto const next = live_.lower_bound(offset);
    PROTRAIN_EXPECT(next == live_.end() || end <= next->first, "lease: overlaps a live lease");
    PROTRAIN_EXPECT(next == live_.begin() || end_of(*std::prev(next)) <= offset,
                    "lease: overlaps a live lease");
    insert(next, offset, {bytes, what});
    add(what, bytes);
    rounded_ += granules(bytes);
    if (end > peak_) {
      peak_ = end;
      reached_ = false;
    }
  }

  void release(std::uint64_t offset, std::uint64_t bytes, category what) {
    if (bytes == 0) {
      return;
    }
    auto const at = live_.find(offset);
    PROTRAIN_EXPECT(at != live_.end(), "release: nothing is leased at this offset");
    PROTRAIN_EXPECT(at->second.bytes == bytes, "release: the lease has another size");
    PROTRAIN_EXPECT(at->second.what == what, "release: the lease has another category");
    now_[index(what)] -= bytes;
    now_[index(category::padding)] -= granules(bytes) - bytes;
    rounded_ -= granules(bytes);
    spare_.push_back(live_.extract(at));
  }

  void settle() {
    if (!reached_) {
      at_peak_ = categories();
      reached_ = true;
    }
    auto& most = maximum_[index(category::fragmentation)];
    most = std::max(most, extent() - rounded_);
  }

  usage counted() const {
    return {.peak = peak_,
            .at_peak = reached_ ? at_peak_ : categories(),
            .maximum = maximum_,
            .live = live_.size()};
  }

  void reset() {
    peak_ = extent();
    maximum_ = now_;
    reached_ = false;
  }

 private:
  struct held {
    std::uint64_t bytes = 0;
    category what = category::scratch;
  };
  using table = std::map<std::uint64_t, held>;

  static constexpr std::size_t index(category what) { return static_cast<std::size_t>(what); }
  static std::uint64_t end_of(table::value_type const& lease) {
    return lease.first + granules(lease.second.bytes);
  }

  // Nodes of returned leases serve again: a step that has run once allocates nothing here.
  void insert(table::iterator next, std::uint64_t offset, held what) {
    if (spare_.empty()) {
      spare_.reserve(live_.size() + 1);  // first: a lease that fails leaves nothing
      live_.emplace_hint(next, offset, what);
      return;
    }
    table::node_type node = std::move(spare_.back());
    spare_.pop_back();
    node.key() = offset;
    node.mapped() = what;
    live_.insert(next, std::move(node));
  }

  void add(category what, std::uint64_t bytes) {
    raise(what, bytes);
    raise(category::padding, granules(bytes) - bytes);
  }

  void raise(category what, std::uint64_t bytes) {
    std::size_t const i = index(what);
    now_[i] += bytes;
    maximum_[i] = std::max(maximum_[i], now_[i]);
  }

  std::uint64_t extent() const { return live_.empty() ? 0 : end_of(*live_.rbegin()); }

  std::array<std::uint64_t, category_count> categories() const {
    auto all = now_;
    all[index(category::fragmentation)] = peak_ - rounded_;
    return all;
  }

  table live_{};
  std::vector<table::node_type> spare_{};
  std::array<std::uint64_t, category_count> now_{};
  std::array<std::uint64_t, category_count> at_peak_{};
  std::array<std::uint64_t, category_count> maximum_{};
  std::uint64_t rounded_ = 0;
  std::uint64_t peak_ = 0;
  bool reached_ = true;  // at_peak_ is of a settled position that follows the peak
};

}  // namespace detail

/// Counts leases as `usage` defines, for the caller's thread alone. O(log n) in the live leases.
/// A lease of no bytes is nothing. Within one program position, release before leasing: the peak
/// and the maxima see every state in between.
///
/// * `at_peak` sums to `peak`: asked bytes by category, `padding` up to the granules, and
///   `fragmentation`, the bytes below the peak that no lease holds. It is replaced when a lease
///   ends beyond the peak so far; before that lease's position is settled, it describes now.
/// * `maximum` of `fragmentation`: over settled positions, the bytes below the largest end of a
///   live lease that no lease holds.
class ledger {
 public:
  /// Overlapping a live lease is a contract error.
  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    of(where).lease(offset, bytes, what);
  }

  /// Returning what is not leased exactly so is a contract error.
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    of(where).release(offset, bytes, what);
  }

  /// Closes a program position.
  void settle() {
    for (detail::space_ledger& one : spaces_) {
      one.settle();
    }
  }

  usage usage_of(space where) const { return spaces_[static_cast<std::size_t>(where)].counted(); }

  /// Starts anew from the leases that are live.
  void reset() {
    for (detail::space_ledger& one : spaces_) {
      one.reset();
    }
  }

 private:
  detail::space_ledger& of(space where) { return spaces_[static_cast<std::size_t>(where)]; }

  std::array<detail::space_ledger, space_count> spaces_{};
};

}  // namespace protrain::inline v0::device
