// SPDX-License-Identifier: Apache-2.0
#pragma once
// The serial device's memory: poison where nothing was written, canaries between tensors, and a
// snapshot to compare with. Fills that must wait for tasks are kept until those are over.

#include "protrain/core/canary.hpp"
#include "protrain/core/math.hpp"
#include "protrain/device/pages.hpp"
#include "protrain/device/serial/detail/clock.hpp"
#include "protrain/device/serial/hazard.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <queue>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::device {

/// What memory holds before a task writes it: as fp32 or bf16 a tiny negative number, as an index
/// out of any range.
inline constexpr std::byte poison{0xA5};

namespace detail {

/// Canaries are numbered by address.
class guarded_space {
 public:
  bool try_reserve(std::uint64_t bytes) {
    canaries_.clear();
    snapshot_.clear();
    if (!memory_.try_reserve(bytes)) {
      return false;
    }
    std::fill_n(memory_.data(), memory_.size(), poison);
    return true;
  }

  std::byte* data() const { return memory_.data(); }
  std::uint64_t size() const { return memory_.size(); }

  void forget_canaries() { canaries_.clear(); }

  /// The bytes stop being canaries.
  void uncover(std::uint64_t begin, std::uint64_t end) {
    each_canary(begin, end, [&](std::uint64_t b, std::uint64_t e) { erase(b, e); });
  }

  void fill_poison(std::uint64_t begin, std::uint64_t end) {
    uncover(begin, end);
    std::fill_n(data() + begin, end - begin, poison);
    keep(begin, end);
  }

  void fill_canary(std::uint64_t begin, std::uint64_t end) {
    uncover(begin, end);
    core::fill_canary(data() + begin, end - begin, begin);
    if (begin < end) {
      canaries_[begin] = end;
    }
    keep(begin, end);
  }

  /// First and one past the last damaged canary of a range; equal if there is none.
  std::pair<std::uint64_t, std::uint64_t> damage(std::uint64_t begin, std::uint64_t end) {
    std::uint64_t first = end;
    std::uint64_t last = end;
    each_canary(begin, end, [&](std::uint64_t b, std::uint64_t e) {
      canary_damage const d = damage_of(data() + b, e - b, b);
      if (d.bytes() > 0) {
        first = std::min(first, b + d.begin);
        last = b + d.end;
      }
    });
    return {first, last};
  }

  void take_snapshot() { snapshot_.assign(data(), data() + size()); }
  void drop_snapshot() { snapshot_.clear(); }

  /// First byte of [begin, end) that isn't as in the snapshot, or `end`.
  std::uint64_t first_change(std::uint64_t begin, std::uint64_t end) const {
    if (begin >= end || std::memcmp(data() + begin, snapshot_.data() + begin, end - begin) == 0) {
      return end;
    }
    std::byte const* const from = data() + begin;
    std::byte const* const at =
        std::mismatch(from, from + (end - begin), snapshot_.data() + begin).first;
    return begin + static_cast<std::uint64_t>(at - from);
  }

  /// One past the stretch of changed bytes that starts at `begin`.
  std::uint64_t end_of_change(std::uint64_t begin, std::uint64_t end) const {
    auto const differ = [](std::byte a, std::byte b) { return a != b; };
    std::byte const* const from = data() + begin;
    auto const* const at =
        std::mismatch(from, from + (end - begin), snapshot_.data() + begin, differ).first;
    return begin + static_cast<std::uint64_t>(at - from);
  }

  /// Brings the snapshot up to date.
  void keep(std::uint64_t begin, std::uint64_t end) {
    if (!snapshot_.empty() && begin < end) {
      std::memcpy(snapshot_.data() + begin, data() + begin, end - begin);
    }
  }

 private:
  /// Calls visit(begin, end) for each stretch of canaries in a range; visit may erase it.
  template <class Visit>
  void each_canary(std::uint64_t begin, std::uint64_t end, Visit visit) {
    auto at = canaries_.lower_bound(begin);
    if (at != canaries_.begin() && std::prev(at)->second > begin) {
      --at;
    }
    while (at != canaries_.end() && at->first < end) {
      auto const [b, e] = *at++;
      visit(std::max(b, begin), std::min(e, end));
    }
  }

  /// [begin, end) lies in one stretch.
  void erase(std::uint64_t begin, std::uint64_t end) {
    auto const at = std::prev(canaries_.upper_bound(begin));
    std::uint64_t const rest = at->second;
    if (at->first < begin) {
      at->second = begin;
    } else {
      canaries_.erase(at);
    }
    if (end < rest) {
      canaries_[end] = rest;
    }
  }

  pages memory_{};
  std::map<std::uint64_t, std::uint64_t> canaries_{};  // begin to end
  std::vector<std::byte> snapshot_{};
};

/// Fills that wait until the tasks that may touch the bytes are over, in the order in which they
/// were asked for.
class pending_fills {
 public:
  struct fill {
    range what{};
    bool canary = false;
    vector_clock after{};  ///< what must be done before
    bool applied = false;
  };

  void add(fill const& f, vector_clock const& done) {
    fills_.push_back(f);
    place(fills_.size() - 1, done);
  }

  /// Queue `q` has got on: calls apply(fill) for each that became due.
  template <class Apply>
  void advance(std::size_t q, vector_clock const& done, Apply apply) {
    heap& waiting = waiting_[q];
    while (!waiting.empty() && waiting.top().first <= done[q]) {
      std::size_t const i = waiting.top().second;
      waiting.pop();
      if (place(i, done)) {
        fills_[i].applied = true;
        apply(fills_[i]);
      }
    }
  }

  /// Nothing is left to wait for.
  template <class Apply>
  void finish(Apply apply) {
    for (fill const& f : fills_) {
      if (!f.applied) {
        apply(f);
      }
    }
    fills_.clear();
    waiting_ = {};
  }

 private:
  using key = std::pair<std::uint64_t, std::size_t>;  // position, rank
  using heap = std::priority_queue<key, std::vector<key>, std::greater<>>;

  /// True if it is due; else it waits for the next queue that holds it back.
  bool place(std::size_t i, vector_clock const& done) {
    for (std::size_t q = 0; q < queue_count; ++q) {
      if (fills_[i].after[q] > done[q]) {
        waiting_[q].emplace(fills_[i].after[q], i);
        return false;
      }
    }
    return true;
  }

  std::vector<fill> fills_{};
  std::array<heap, queue_count> waiting_{};
};

}  // namespace detail
}  // namespace protrain::inline v0::device
