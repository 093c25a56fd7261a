// SPDX-License-Identifier: Apache-2.0
#pragma once
// Happens-before among the entries of queues, from queue order and events alone: vector clocks,
// known when work is issued and independent of the order in which it later runs.

#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::device::detail {

/// By queue, how many of its entries come before.
using vector_clock = std::array<std::uint64_t, queue_count>;

constexpr std::size_t index_of(queue_id q) noexcept { return static_cast<std::size_t>(q); }

/// True if everything that `limit` counts is in `done`.
constexpr bool covered(vector_clock const& limit, vector_clock const& done) noexcept {
  for (std::size_t q = 0; q < queue_count; ++q) {
    if (limit[q] > done[q]) {
      return false;
    }
  }
  return true;
}

class clocks {
 public:
  struct mark {
    queue_id queue = queue_id::compute;
    vector_clock before{};
    std::uint64_t position() const { return before[index_of(queue)]; }
  };

  /// Position of a new entry of `q`, from 1.
  std::uint64_t advance(queue_id q) { return ++now_[index_of(q)][index_of(q)]; }

  /// What comes before the next entry of `q`.
  vector_clock const& before(queue_id q) const { return now_[index_of(q)]; }

  event record(queue_id q) {
    marks_.push_back({q, before(q)});
    return {first_ + static_cast<std::uint32_t>(marks_.size() - 1)};
  }

  mark const& at(event e) const {
    // Numbers go on after a reset, so that a stale event is seen as one.
    PROTRAIN_EXPECT(e.value - first_ < marks_.size(), "wait: the event was reset or not recorded");
    return marks_[e.value - first_];
  }

  /// Later entries of `q` come after `m`.
  void wait(queue_id q, mark const& m) {
    vector_clock& own = now_[index_of(q)];
    for (std::size_t i = 0; i < queue_count; ++i) {
      own[i] = std::max(own[i], m.before[i]);
    }
  }

  void reset_events() {
    first_ += static_cast<std::uint32_t>(marks_.size());
    marks_.clear();
  }

  /// Everything issued so far comes before everything later.
  void join() {
    vector_clock const all = issued();
    now_.fill(all);
  }

  vector_clock issued() const {
    vector_clock all{};
    for (std::size_t q = 0; q < queue_count; ++q) {
      all[q] = now_[q][q];
    }
    return all;
  }

 private:
  std::array<vector_clock, queue_count> now_{};
  std::vector<mark> marks_{};
  std::uint32_t first_ = 0;
};

}  // namespace protrain::inline v0::device::detail
