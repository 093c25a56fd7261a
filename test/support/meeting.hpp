// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ranks of one process that notice when all of them wait for each other: what would be a hang is an
// error, at once.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/queue.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

namespace protrain::test {

/// Who is in which collective. A rank plays all its queues on one thread, as on device/serial.
class waiting_room {
 public:
  explicit waiting_room(std::uint32_t ranks) : at_(ranks, nowhere) {
    for (std::vector<std::uint64_t>& c : come_) {
      c.assign(ranks, 0);
    }
  }

  // Each answers whether nobody can go on any more.
  bool enter(std::uint32_t rank, std::size_t channel) {
    std::lock_guard const lock(mutex_);
    ++come_[channel][rank];
    at_[rank] = channel;
    return stuck();
  }
  /// The rank comes to no further collective.
  bool finish(std::uint32_t rank) {
    std::lock_guard const lock(mutex_);
    at_[rank] = gone;
    return stuck();
  }
  void leave(std::uint32_t rank) {
    std::lock_guard const lock(mutex_);
    at_[rank] = nowhere;
  }

 private:
  static constexpr std::size_t channels = queue_count + 1;
  static constexpr std::size_t nowhere = channels;
  static constexpr std::size_t gone = channels + 1;

  /// Every rank that isn't gone waits for one that has come less often than itself.
  bool stuck() const {
    bool any = false;
    for (std::size_t r = 0; r < at_.size(); ++r) {
      if (at_[r] == gone) {
        continue;
      }
      if (at_[r] == nowhere) {
        return false;
      }
      auto const& come = come_[at_[r]];
      if (std::ranges::all_of(come, [&](std::uint64_t n) { return n >= come[r]; })) {
        return false;
      }
      any = true;
    }
    return any;
  }

  std::mutex mutex_{};
  std::vector<std::size_t> at_;                              // by rank
  std::array<std::vector<std::uint64_t>, channels> come_{};  // by channel and rank: collectives
};

/// comm::threads under the eyes of a waiting_room.
class watched_threads {
 public:
  watched_threads(comm::thread_group& group, waiting_room& room, std::uint32_t rank)
      : threads_(group, rank), room_(room) {}

  std::uint32_t rank() const noexcept { return threads_.rank(); }
  std::uint32_t size() const noexcept { return threads_.size(); }

  void reduce_scatter_ordered(device::queue_ref q,
                              std::byte* data,
                              std::byte* staging,
                              std::uint64_t elements,
                              dtype type) {
    visit const inside(*this, static_cast<std::size_t>(q.id));
    threads_.reduce_scatter_ordered(q, data, staging, elements, type);
  }
  void all_gather(device::queue_ref q, std::byte* data, std::uint64_t bytes_per_rank) {
    visit const inside(*this, static_cast<std::size_t>(q.id));
    threads_.all_gather(q, data, bytes_per_rank);
  }
  std::uint64_t sum(std::uint64_t n) {
    visit const inside(*this, queue_count);
    return threads_.sum(n);
  }
  void abort(std::string_view why) noexcept { threads_.abort(why); }
  /// Once the rank is done, or has failed.
  void finish() {
    if (room_.finish(rank())) {
      abort(hang);
    }
  }

  static constexpr std::string_view hang = "every rank waits for another one";

 private:
  class visit {
   public:
    visit(watched_threads& of, std::size_t channel) : of_(of) {
      if (of_.room_.enter(of_.rank(), channel)) {
        of_.abort(hang);
      }
    }
    visit(visit const&) = delete;
    visit& operator=(visit const&) = delete;
    ~visit() { of_.room_.leave(of_.rank()); }

   private:
    watched_threads& of_;
  };

  comm::threads threads_;
  waiting_room& room_;
};
static_assert(comm::communicator<watched_threads>);

}  // namespace protrain::test
