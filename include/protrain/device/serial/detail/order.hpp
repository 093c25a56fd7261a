// SPDX-License-Identifier: Apache-2.0
#pragma once
// Picks the next task among those that may run. Seeded: the same draws everywhere.

#include "protrain/core/philox.hpp"
#include "protrain/device/serial/options.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace protrain::inline v0::device::detail {

/// The first task of a queue, all of whose waits are over.
struct candidate {
  queue_id queue = queue_id::compute;
  std::uint64_t issue = 0;  ///< rank in the order of submission
};

class run_order {
 public:
  run_order(run_policy policy, std::uint64_t seed)
      : policy_(policy), stream_{.key = seed, .lane = 0} {}

  /// Before the tasks of a `synchronize`.
  void begin() {
    habit_ = habit::oldest;
    if (policy_ == run_policy::random) {
      habit_ = habit::any;
    } else if (policy_ == run_policy::adversarial) {
      constexpr habit hostile[] = {
          habit::starve, habit::starve, habit::favour, habit::newest, habit::turns};
      habit_ = hostile[draw(5)];
      chosen_ = static_cast<queue_id>(draw(queue_count));
    }
  }

  /// Index of the one to run; `ready` is not empty and sorted by queue.
  std::size_t pick(std::span<candidate const> ready) {
    switch (habit_) {
      case habit::any:
        return draw(ready.size());
      case habit::starve:
        return among(ready, [&](candidate const& c) { return c.queue != chosen_; });
      case habit::favour:
        return among(ready, [&](candidate const& c) { return c.queue == chosen_; });
      case habit::newest:
        return extreme(ready,
                       [](candidate const& a, candidate const& b) { return a.issue > b.issue; });
      case habit::turns:
        return turn(ready);
      case habit::oldest:
        break;
    }
    return extreme(ready, [](candidate const& a, candidate const& b) { return a.issue < b.issue; });
  }

 private:
  enum class habit : std::uint8_t { oldest, any, starve, favour, newest, turns };

  std::size_t draw(std::size_t n) { return stream_.word(drawn_++) % n; }

  template <class Before>
  static std::size_t extreme(std::span<candidate const> ready, Before before) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < ready.size(); ++i) {
      best = before(ready[i], ready[best]) ? i : best;
    }
    return best;
  }

  /// Any of the preferred, or of all if there is none.
  template <class Preferred>
  std::size_t among(std::span<candidate const> ready, Preferred preferred) {
    std::size_t const start = draw(ready.size());
    for (std::size_t i = 0; i < ready.size(); ++i) {
      std::size_t const at = (start + i) % ready.size();
      if (preferred(ready[at])) {
        return at;
      }
    }
    return start;
  }

  std::size_t turn(std::span<candidate const> ready) {
    std::size_t at = 0;
    while (at < ready.size() && ready[at].queue <= chosen_) {
      ++at;
    }
    at %= ready.size();
    chosen_ = ready[at].queue;
    return at;
  }

  run_policy policy_;
  random_stream stream_;
  std::uint64_t drawn_ = 0;
  habit habit_ = habit::oldest;
  queue_id chosen_ = queue_id::compute;
};

}  // namespace protrain::inline v0::device::detail
