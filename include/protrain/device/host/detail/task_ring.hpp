// SPDX-License-Identifier: Apache-2.0
#pragma once
// A first-in first-out ring of a queue's entries. It grows to the longest run between two rests
// and then allocates nothing more, however the backlog comes and goes.

#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::device::detail {

/// A task, or a wait for a position of another queue.
struct queued {
  task work{};
  bool is_wait = false;
  queue_id awaited = queue_id::compute;
  std::uint64_t until = 0;
};

class task_ring {
 public:
  bool empty() const noexcept { return count_ == 0; }
  std::size_t size() const noexcept { return count_; }
  std::size_t capacity() const noexcept { return slots_.size(); }

  void push(queued const& entry) {
    ++pushed_;
    if (count_ == slots_.size()) {
      grow();
    }
    slots_[(first_ + count_) % slots_.size()] = entry;
    ++count_;
  }

  /// Between two runs of an empty ring: makes room for all that the last run pushed, since the next
  /// one may push as much before anything is popped.
  void rest() {
    while (slots_.size() < pushed_) {
      grow();
    }
    pushed_ = 0;
  }

  queued pop() {
    PROTRAIN_EXPECT(count_ > 0, "task ring: pop of an empty ring");
    queued const entry = slots_[first_];
    first_ = (first_ + 1) % slots_.size();
    --count_;
    return entry;
  }

 private:
  void grow() {
    std::vector<queued> larger(slots_.empty() ? 64 : 2 * slots_.size());
    for (std::size_t i = 0; i < count_; ++i) {
      larger[i] = slots_[(first_ + i) % slots_.size()];
    }
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<queued> slots_{};
  std::size_t first_ = 0;
  std::size_t count_ = 0;
  std::size_t pushed_ = 0;  // since the last rest
};

}  // namespace protrain::inline v0::device::detail
