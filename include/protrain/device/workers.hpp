// SPDX-License-Identifier: Apache-2.0
#pragma once
// A fixed number of threads that share one piece of work at a time, such as the update of a chunk.

#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace protrain::inline v0::device {

/// The thread that calls `run` is one of them; the others sleep between runs and look at nothing
/// else. After construction nothing allocates. Destruction joins. One caller at a time, and no run
/// inside another: both are contract errors.
class workers {
 public:
  /// `threads` in all, at least 1; a crew of one starts no thread. Throws std::system_error where
  /// the system grants fewer.
  explicit workers(std::uint32_t threads) : size_(threads), seats_(make_seats(threads)) {
    others_.reserve(threads - 1);
    try {
      for (std::uint32_t own = 1; own < threads; ++own) {
        others_.emplace_back([this, own] { serve(own); });
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  workers(workers const&) = delete;
  workers& operator=(workers const&) = delete;
  ~workers() { stop(); }

  std::uint32_t size() const noexcept { return size_; }

  /// Calls f(part) for each part below `parts` <= size(): part 0 on this thread, each other one on
  /// a thread of its own, always the same. Every call has the contract's floating-point
  /// environment. Waits for all of them, then rethrows what the lowest part threw.
  template <class F>
  void run(std::uint32_t parts, F const& f) {
    PROTRAIN_EXPECT(parts <= size_, "workers: more parts than threads");
    if (parts == 0) {
      return;
    }
    one_run const mine(busy_);
    call_ = {
        .function = [](void const* of, std::uint32_t part) { (*static_cast<F const*>(of))(part); },
        .context = &f};
    left_.store(parts - 1, std::memory_order_relaxed);
    for (std::uint32_t part = 1; part < parts; ++part) {
      seats_[part].post();
    }
    work(0);
    std::uint32_t left = left_.load(std::memory_order_acquire);
    while (left != 0) {
      left_.wait(left, std::memory_order_acquire);
      left = left_.load(std::memory_order_acquire);
    }
    rethrow(parts);
  }

 private:
  struct call {
    void (*function)(void const* context, std::uint32_t part) = nullptr;
    void const* context = nullptr;
  };

  /// Where a thread waits for its part; a cache line each.
  struct alignas(64) seat {
    std::atomic<std::uint32_t> posted{0};
    std::exception_ptr failure{};

    void post() noexcept {
      posted.fetch_add(1, std::memory_order_release);
      posted.notify_one();
    }
  };

  /// Says that a run is on, until its end.
  class one_run {
   public:
    explicit one_run(std::atomic<bool>& busy) : busy_(busy) {
      PROTRAIN_EXPECT(!busy.exchange(true), "workers: one run at a time, and none inside another");
    }
    one_run(one_run const&) = delete;
    one_run& operator=(one_run const&) = delete;
    ~one_run() { busy_ = false; }

   private:
    std::atomic<bool>& busy_;
  };

  static std::unique_ptr<seat[]> make_seats(std::uint32_t threads) {
    PROTRAIN_EXPECT(threads > 0, "workers: the caller is one of the threads");
    return std::make_unique<seat[]>(threads);
  }

  void work(std::uint32_t part) noexcept {
    float_environment const environment;
    try {
      call_.function(call_.context, part);
    } catch (...) {
      seats_[part].failure = std::current_exception();
    }
  }

  void serve(std::uint32_t own) noexcept {
    for (std::uint32_t seen = 0;; ++seen) {
      seats_[own].posted.wait(seen, std::memory_order_acquire);
      if (stopping_) {
        return;
      }
      work(own);
      if (left_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        left_.notify_one();
      }
    }
  }

  void rethrow(std::uint32_t parts) {
    std::exception_ptr first;
    for (std::uint32_t part = 0; part < parts; ++part) {
      std::exception_ptr const failure = std::exchange(seats_[part].failure, nullptr);
      first = first == nullptr ? failure : first;
    }
    if (first != nullptr) {
      std::rethrow_exception(first);
    }
  }

  void stop() noexcept {
    stopping_ = true;
    for (std::size_t i = 0; i < others_.size(); ++i) {
      seats_[i + 1].post();
      others_[i].join();
    }
  }

  std::uint32_t size_;
  std::unique_ptr<seat[]> seats_;
  call call_{};                         // written before parts are posted
  std::atomic<std::uint32_t> left_{0};  // parts of other threads that are not over
  std::atomic<bool> busy_{false};
  std::atomic<bool> stopping_{false};
  std::vector<std::thread> others_{};
};

}  // namespace protrain::inline v0::device
