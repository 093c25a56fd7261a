// SPDX-License-Identifier: Apache-2.0
#pragma once
// Device memory for as long as an object lives, and work that is waited for.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/device.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::profile::detail {

/// A place in an arena.
struct placed {
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
  bool operator==(placed const&) const = default;
};

/// Hands out places of an arena one after the other.
class placer {
 public:
  explicit placer(std::uint64_t first = 0) : end_(first) {}
  placed take(std::uint64_t bytes) {
    placed const out{end_, bytes};
    end_ = checked_add(end_, granules(bytes));
    return out;
  }
  std::uint64_t end() const noexcept { return end_; }

 private:
  std::uint64_t end_;
};

/// Returns what it took, last first; by then no work that touches it is queued.
template <device::device Device>
class leases {
 public:
  explicit leases(Device& d) : device_(d) {}
  leases(leases const&) = delete;
  leases& operator=(leases const&) = delete;
  ~leases() {
    for (auto l = held_.rbegin(); l != held_.rend(); ++l) {
      device_.release(l->where, l->at.offset, l->at.bytes, l->what);
    }
  }

  void take(space where, placed const& at, category what) {
    if (at.bytes > 0) {
      held_.reserve(held_.size() + 1);
      device_.lease(where, at.offset, at.bytes, what);
      held_.push_back({where, at, what});
    }
  }

 private:
  struct lease {
    space where = space::device;
    placed at{};
    category what = category::scratch;
  };
  Device& device_;
  std::vector<lease> held_{};
};

enum class access : std::uint8_t { read, write, read_write };

inline void touch(std::vector<device::touched>& list, space where, placed const& at, access how) {
  if (at.bytes > 0) {
    list.push_back({.where = where,
                    .offset = at.offset,
                    .bytes = at.bytes,
                    .write = how != access::read,
                    .read = how != access::write});
  }
}

/// Runs what is queued, if anything is; what it throws is not the failure that led here.
template <device::device Device>
void drain(Device& d) noexcept {
  try {
    d.synchronize();
  } catch (...) {  // NOLINT(bugprone-empty-catch)
  }
}

/// Runs `work(queue)` on a queue and waits. Rethrows what it throws; then nothing is queued.
template <device::device Device, class Work>
void run_now(Device& d, queue_id q, std::span<device::touched const> ranges, Work& work) {
  device::task const t{[](void* context, std::uint32_t, device::queue_ref queue) {
                         (*static_cast<Work*>(context))(queue);
                       },
                       &work,
                       0};
  d.submit(q, ranges, t);
  d.synchronize();
}

}  // namespace protrain::inline v0::profile::detail
