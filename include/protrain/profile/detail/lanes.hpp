// SPDX-License-Identifier: Apache-2.0
#pragma once
// Several queues at work at the same time, and how long a piece of work takes on each.

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/profile/detail/work.hpp"
#include "protrain/profile/hooks.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile::detail {

/// Work that is repeated on one queue.
struct lane {
  queue_id queue = queue_id::compute;
  std::uint64_t amount = 0;  ///< of one piece: bytes, operations
  std::vector<device::touched> touched{};
  std::function<void(device::queue_ref)> work{};
};

/// Seconds on the device's clock.
struct interval {
  double begin = 0;
  double end = 0;
};
using intervals = std::vector<interval>;

inline interval hull(intervals const& of) {
  interval out{std::numeric_limits<double>::infinity(), 0};
  for (interval const& i : of) {
    out = {std::min(out.begin, i.begin), std::max(out.end, i.end)};
  }
  return out;
}

/// The mean of the durations: a link that makes up for a late piece with the next ones has moved no
/// more for that, so single pieces would make it look fast.
inline picoseconds typical(intervals const& of) {
  std::uint64_t sum = 0;
  for (interval const& i : of) {
    sum += between(i.begin, i.end).value;
  }
  return {sum / of.size()};
}

/// Of the pieces that ran while every other lane was at work; of all pieces if there are none,
/// since then nothing runs beside anything.
inline picoseconds typical_beside(std::span<intervals const> all, std::size_t own) {
  interval window{0, std::numeric_limits<double>::infinity()};
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i != own) {
      interval const other = hull(all[i]);
      window = {std::max(window.begin, other.begin), std::min(window.end, other.end)};
    }
  }
  intervals inside;
  std::ranges::copy_if(all[own], std::back_inserter(inside), [&](interval const& i) {
    return i.begin >= window.begin && i.end <= window.end;
  });
  return typical(inside.empty() ? all[own] : inside);
}

/// A lane and how many pieces of it run.
struct lane_use {
  lane const* of = nullptr;
  std::uint32_t pieces = 0;
};

template <device::device Device>
class lane_runner {
 public:
  explicit lane_runner(Device& d) : device_(d), watch_(d) {}

  /// Runs all lanes at once, in pieces by turns, and waits. If anything throws, nothing is queued.
  std::vector<intervals> run(std::span<lane_use const> lanes) {
    watch_.reset();
    std::vector<running> all;
    for (lane_use const& u : lanes) {
      all.push_back({u.of, &watch_, std::vector<mark>(u.pieces), std::vector<mark>(u.pieces)});
    }
    try {
      submit(all);
      device_.synchronize();
    } catch (...) {
      drain(device_);
      throw;
    }
    std::vector<intervals> out;
    for (running const& r : all) {
      out.emplace_back();
      for (std::size_t i = 0; i < r.begin.size(); ++i) {
        out.back().push_back({watch_.seconds(r.begin[i]), watch_.seconds(r.end[i])});
      }
    }
    return out;
  }

 private:
  using mark = typename stopwatch<Device>::mark;
  struct running {
    lane const* of;
    stopwatch<Device>* watch;
    std::vector<mark> begin;  // each written by the piece of that number
    std::vector<mark> end;
  };

  void submit(std::vector<running>& all) {
    std::size_t most = 0;
    for (running const& r : all) {
      most = std::max(most, r.begin.size());
    }
    for (std::size_t i = 0; i < most; ++i) {
      for (running& r : all) {
        if (i < r.begin.size()) {
          device_.submit(
              r.of->queue, r.of->touched, {&run_piece, &r, static_cast<std::uint32_t>(i)});
        }
      }
    }
  }

  static void run_piece(void* context, std::uint32_t index, device::queue_ref queue) {
    auto& r = *static_cast<running*>(context);
    r.begin[index] = r.watch->now(queue);
    r.of->work(queue);
    r.end[index] = r.watch->now(queue);
  }

  Device& device_;
  stopwatch<Device> watch_;
};

}  // namespace protrain::inline v0::profile::detail
