// SPDX-License-Identifier: Apache-2.0
#pragma once
// What happened to each byte of a space: which lease holds it, whether it was written since, who
// wrote it last and who has read it after that. Kept by ranges of equal history.

#include "protrain/core/config.hpp"
#include "protrain/device/serial/detail/clock.hpp"
#include "protrain/device/serial/hazard.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>

namespace protrain::inline v0::device::detail {

struct history {
  struct reader {
    std::uint64_t position = 0;  ///< 0 = no read since the last write
    std::uint32_t index = no_task;
    bool operator==(reader const&) const = default;
  };

  std::uint64_t lease = 0;  ///< number of the live lease whose asked bytes these are; 0 = none
  bool fresh = false;       ///< not touched since they were leased
  bool written = false;     ///< since they were leased
  queue_id writer_queue = queue_id::compute;
  reader writer{};                            ///< the last one, of this lease or an earlier one
  std::array<reader, queue_count> readers{};  ///< by queue, the last one after `writer`

  bool operator==(history const&) const = default;

  task_point last_writer() const { return {writer_queue, writer.position, writer.index}; }
  task_point last_reader(std::size_t q) const {
    return {static_cast<queue_id>(q), readers[q].position, readers[q].index};
  }

  /// What must be done before the bytes may be changed behind the tasks' backs.
  vector_clock touched() const {
    vector_clock all{};
    for (std::size_t q = 0; q < queue_count; ++q) {
      all[q] = readers[q].position;
    }
    std::uint64_t& own = all[index_of(writer_queue)];
    own = own < writer.position ? writer.position : own;
    return all;
  }

  /// Everything so far comes before everything later.
  void forget() {
    writer_queue = queue_id::compute;
    writer = {};
    readers = {};
  }
};

/// O(log n + k) for a range of k pieces among n.
class access_map {
 public:
  /// Nothing leased, nothing touched.
  void reset(std::uint64_t size) {
    size_ = size;
    pieces_.clear();
    if (size > 0) {
      pieces_.emplace(0, history{});
    }
  }

  std::uint64_t size() const { return size_; }

  /// Calls visit(begin, end, history&) for each piece of [begin, end), in order.
  template <class Visit>
  void each(std::uint64_t begin, std::uint64_t end, Visit visit) {
    PROTRAIN_EXPECT(begin <= end && end <= size_, "access map: range outside the space");
    if (begin == end) {
      return;
    }
    auto at = split(begin);
    auto const stop = split(end);
    while (at != stop) {
      auto const next = std::next(at);
      visit(at->first, next == pieces_.end() ? size_ : next->first, at->second);
      at = next;
    }
  }

  /// One piece with history `h` instead of what [begin, end), not empty, held.
  void assign(std::uint64_t begin, std::uint64_t end, history const& h) {
    PROTRAIN_EXPECT(begin < end && end <= size_, "access map: range outside the space");
    auto const first = split(begin);
    auto const stop = split(end);
    first->second = h;
    pieces_.erase(std::next(first), stop);
  }

  /// Everything so far comes before everything later: histories end, equal neighbours join.
  void settle() {
    for (auto at = pieces_.begin(); at != pieces_.end();) {
      at->second.forget();
      if (at != pieces_.begin() && std::prev(at)->second == at->second) {
        at = pieces_.erase(at);
      } else {
        ++at;
      }
    }
  }

  std::size_t pieces() const { return pieces_.size(); }

 private:
  using table = std::map<std::uint64_t, history>;

  table::iterator split(std::uint64_t at) {
    if (at == size_) {
      return pieces_.end();
    }
    auto const next = pieces_.lower_bound(at);
    if (next != pieces_.end() && next->first == at) {
      return next;
    }
    return pieces_.emplace_hint(next, at, std::prev(next)->second);
  }

  std::uint64_t size_ = 0;
  table pieces_{};
};

}  // namespace protrain::inline v0::device::detail
