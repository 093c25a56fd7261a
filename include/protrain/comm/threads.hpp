// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several ranks in one process, each on threads of its own: jobs over ranks without a network, for
// devices whose memory every thread can read.

#include "protrain/comm/communicator.hpp"
#include "protrain/comm/error.hpp"
#include "protrain/comm/fold.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::comm {
namespace detail {

enum class operation : std::uint8_t { reduce_scatter_ordered, all_gather, sum };

/// What one rank brings to a collective.
struct call {
  operation what = operation::sum;
  dtype type = dtype::u8;
  std::uint64_t amount = 0;   ///< elements, bytes per rank, or the number to add
  std::byte* data = nullptr;  ///< read by the other ranks until all have left

  bool matches(call const& other) const noexcept {
    return what == other.what && type == other.type &&
           (what == operation::sum || amount == other.amount);
  }
};

inline std::string describe(call const& c) {
  if (c.what == operation::sum) {
    return "sum";
  }
  return c.what == operation::all_gather
             ? "all_gather of " + std::to_string(c.amount) + " bytes per rank"
             : "reduce_scatter_ordered of " + std::to_string(c.amount) + " elements of " +
                   std::string(name_of(c.type));
}

/// Where the ranks meet, one per queue and one for `sum`. Guarded by the group's mutex, but for
/// `calls` and `total` between meeting and leaving, when nobody writes them.
struct channel {
  std::vector<call> calls{};         // by rank
  std::vector<std::uint8_t> here{};  // by rank: waits for the others
  std::uint32_t arrived = 0;
  std::uint32_t left = 0;
  std::uint64_t started = 0;   // collectives that all ranks have come to
  std::uint64_t finished = 0;  // and left
  std::uint64_t total = 0;     // of the last sum
  std::condition_variable changed{};
};

}  // namespace detail

class threads;

/// What the ranks of a job share; outlives their communicators. Each queue is a channel of its own:
/// collectives on different queues run at the same time and are never matched with each other.
///
/// A failure anywhere aborts everybody: ranks that call different things, a rank that doesn't come
/// within the timeout, an abort. Every rank that waits then throws the same comm_error, and so does
/// every later collective until `reset`. A collective that all ranks have come to is completed.
class thread_group {
 public:
  /// `timeout` is how long a rank waits for the others to come, at most.
  explicit thread_group(std::uint32_t ranks,
                        std::chrono::milliseconds timeout = std::chrono::seconds(60))
      : ranks_(ranks), timeout_(timeout) {
    PROTRAIN_EXPECT(ranks > 0, "thread_group: a job has at least one rank");
    for (detail::channel& c : channels_) {
      c.calls.resize(ranks);
      c.here.resize(ranks, 0);
    }
  }
  thread_group(thread_group const&) = delete;
  thread_group& operator=(thread_group const&) = delete;
  ~thread_group() = default;

  std::uint32_t size() const noexcept { return ranks_; }

  /// After a failure, once every rank has returned from its collectives: usable again, and
  /// collectives count from 1.
  void reset() {
    std::lock_guard const lock(mutex_);
    PROTRAIN_EXPECT(inside_ == 0, "thread_group::reset: a rank is still in a collective");
    for (detail::channel& c : channels_) {
      c.here.assign(ranks_, 0);
      c.arrived = 0;
      c.started = 0;
      c.finished = 0;
    }
    failed_ = false;
    reason_.clear();
  }

 private:
  friend class threads;
  static constexpr std::size_t sum_channel = queue_count;

  /// Waits until every rank has come with the same call. Whoever returns must `leave`.
  detail::channel& meet(std::size_t where, std::uint32_t rank, detail::call const& mine) {
    detail::channel& c = channels_[where];
    std::unique_lock lock(mutex_);
    throw_failure();
    PROTRAIN_EXPECT(c.here[rank] == 0, "comm::threads: two callers of one rank on one queue");
    c.calls[rank] = mine;
    c.here[rank] = 1;
    ++inside_;
    if (++c.arrived == ranks_) {
      start(where, c);
    } else {
      await(where, c, lock);
    }
    return c;
  }

  /// Waits until no rank reads another's memory any more. Nothing interrupts this: the others
  /// are copying, and what they read must stay.
  void leave(detail::channel& c) {
    std::unique_lock lock(mutex_);
    if (++c.left == ranks_) {
      c.left = 0;
      ++c.finished;
      c.changed.notify_all();
    } else {
      c.changed.wait(lock, [&, last = c.finished] { return c.finished != last; });
    }
    --inside_;
  }

  /// Ranks that have yet to come to the collective in which `rank` waits; none if it doesn't wait.
  std::vector<std::uint32_t> absent(std::size_t where, std::uint32_t rank) {
    std::lock_guard const lock(mutex_);
    detail::channel const& c = channels_[where];
    std::vector<std::uint32_t> out;
    for (std::uint32_t r = 0; r < ranks_ && c.here[rank] != 0; ++r) {
      if (c.here[r] == 0) {
        out.push_back(r);
      }
    }
    return out;
  }

  void abort(std::uint32_t rank, std::string_view why) noexcept {
    std::lock_guard const lock(mutex_);
    if (failed_) {
      return;
    }
    try {
      fail(rank, "rank " + std::to_string(rank) + " aborted: " + std::string(why));
    } catch (...) {  // out of memory: without the reason
      fail(rank, {});
    }
  }

  // --- with the lock held ------------------------------------------------------------------------

  /// The last rank has come.
  void start(std::size_t where, detail::channel& c) {
    for (std::uint32_t r = 1; r < ranks_; ++r) {
      if (!c.calls[r].matches(c.calls[0])) {
        fail(r,
             place(where, c) + ": rank 0 called " + describe(c.calls[0]) + ", rank " +
                 std::to_string(r) + " " + describe(c.calls[r]) + "; all ranks must call the same");
        give_up();
      }
    }
    if (where == sum_channel) {
      add_up(c);
    }
    c.here.assign(ranks_, 0);
    c.arrived = 0;
    ++c.started;
    c.changed.notify_all();
  }

  void add_up(detail::channel& c) {
    c.total = 0;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      c.total += c.calls[r].amount;
      if (c.total < c.calls[r].amount) {
        fail(r, place(sum_channel, c) + " (sum): the total needs more than 64 bits");
        give_up();
      }
    }
  }

  void await(std::size_t where, detail::channel& c, std::unique_lock<std::mutex>& lock) {
    std::uint64_t const before = c.started;
    auto const until = std::chrono::steady_clock::now() + timeout_;
    bool const woken =
        c.changed.wait_until(lock, until, [&] { return c.started != before || failed_; });
    if (c.started != before) {
      return;  // even if something failed since: the others may be reading this rank's memory
    }
    if (!woken) {
      fail_missing(where, c);
    }
    give_up();
  }

  void fail_missing(std::size_t where, detail::channel const& c) {
    std::string names;
    std::uint32_t first = ranks_;
    std::uint32_t present = 0;
    for (std::uint32_t r = 0; r < ranks_; ++r) {
      if (c.here[r] != 0) {
        present = r;
        continue;
      }
      first = first == ranks_ ? r : first;
      names += (names.empty() ? "rank " : ", rank ") + std::to_string(r);
    }
    fail(first,
         place(where, c) + " (" + describe(c.calls[present]) + "): " + names +
             " did not come within " + std::to_string(timeout_.count()) + " ms");
  }

  std::string place(std::size_t where, detail::channel const& c) const {
    std::string const number = "collective " + std::to_string(c.started + 1);
    return where == sum_channel
               ? "host side, " + number
               : "queue " + std::string(name_of(static_cast<queue_id>(where))) + ", " + number;
  }

  /// The first failure is the one that counts.
  void fail(std::uint32_t rank, std::string reason) noexcept {
    if (!failed_) {
      failed_ = true;
      culprit_ = rank;
      reason_ = std::move(reason);
    }
    for (detail::channel& c : channels_) {
      c.changed.notify_all();
    }
  }

  /// Leaves a collective that failed.
  [[noreturn]] void give_up() {
    --inside_;
    throw comm_error(culprit_, reason_);
  }

  void throw_failure() const {
    if (failed_) {
      throw comm_error(culprit_, reason_);
    }
  }

  std::uint32_t ranks_;
  std::chrono::milliseconds timeout_;
  std::mutex mutex_{};
  std::array<detail::channel, queue_count + 1> channels_{};
  std::uint32_t inside_ = 0;  // callers in a collective
  bool failed_ = false;
  std::uint32_t culprit_ = 0;
  std::string reason_{};
};

/// One rank of a group. Its collectives may be called on one thread per queue; on device/serial,
/// whose one thread plays all queues, the ranks need the same seed and options, hence the same
/// order, or each may wait in a collective that the other has yet to come to.
class threads {
 public:
  threads(thread_group& group, std::uint32_t rank) : group_(group), rank_(rank) {
    PROTRAIN_EXPECT(rank < group.size(), "comm::threads: no such rank in the group");
  }

  std::uint32_t rank() const noexcept { return rank_; }
  std::uint32_t size() const noexcept { return group_.size(); }

  void reduce_scatter_ordered(device::queue_ref q,
                              std::byte* data,
                              std::byte* staging,
                              std::uint64_t elements,
                              dtype type) {
    std::uint32_t const ranks = size();
    PROTRAIN_EXPECT(can_fold(type), "ordered reductions are of fp32, bf16 or fp16");
    PROTRAIN_EXPECT(elements % ranks == 0,
                    "reduce_scatter_ordered: elements are no multiple of the ranks");
    PROTRAIN_EXPECT(elements == 0 || ranks == 1 || (data != nullptr && staging != nullptr),
                    "reduce_scatter_ordered: no data or no staging");
    detail::channel& c = group_.meet(static_cast<std::size_t>(q.id),
                                     rank_,
                                     {.what = detail::operation::reduce_scatter_ordered,
                                      .type = type,
                                      .amount = elements,
                                      .data = data});
    std::uint64_t const shard = elements / ranks * size_of(type);
    bool const alone = ranks == 1 || elements == 0;
    for (std::uint32_t r = 0; !alone && r < ranks; ++r) {
      std::memcpy(staging + r * shard, c.calls[r].data + rank_ * shard, shard);
    }
    group_.leave(c);
    if (!alone) {
      fold(type, data + rank_ * shard, staging, ranks, elements / ranks);
    }
  }

  void all_gather(device::queue_ref q, std::byte* data, std::uint64_t bytes_per_rank) {
    PROTRAIN_EXPECT(bytes_per_rank == 0 || data != nullptr, "all_gather: no data");
    detail::channel& c = group_.meet(
        static_cast<std::size_t>(q.id),
        rank_,
        {.what = detail::operation::all_gather, .amount = bytes_per_rank, .data = data});
    for (std::uint32_t r = 0; bytes_per_rank > 0 && r < size(); ++r) {
      if (r != rank_) {
        std::uint64_t const at = r * bytes_per_rank;
        std::memcpy(data + at, c.calls[r].data + at, bytes_per_rank);
      }
    }
    group_.leave(c);
  }

  std::uint64_t sum(std::uint64_t n) {
    detail::channel& c = group_.meet(thread_group::sum_channel, rank_, {.amount = n});
    std::uint64_t const total = c.total;
    group_.leave(c);
    return total;
  }

  void abort(std::string_view why) noexcept { group_.abort(rank_, why); }

  /// For those who look at what hangs: the ranks that this one waits for on queue `q`, just now.
  std::vector<std::uint32_t> absent(queue_id q) {
    return group_.absent(static_cast<std::size_t>(q), rank_);
  }

 private:
  thread_group& group_;
  std::uint32_t rank_;
};
static_assert(communicator<threads>);

}  // namespace protrain::inline v0::comm
