// SPDX-License-Identifier: Apache-2.0
#pragma once
// Takes and returns a segment's own memory at the device, in program order, so that the device
// counts for itself what is in use.

#include "protrain/device/device.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Of what isn't carried.
template <device::device Device>
class leases {
 public:
  leases(Device& d, schedule::program const& p) : device_(&d), program_(&p) {
    for (std::uint32_t i = 0; i < p.allocations.size(); ++i) {
      if (!p.allocations[i].carried) {
        begins_.push_back(i);
      }
    }
    ends_ = begins_;
    std::ranges::sort(
        ends_, {}, [&](std::uint32_t i) { return std::pair(p.allocations[i].end, i); });
  }

  /// Before the instruction at `position`: returns what ended there, then takes what begins there.
  void advance(std::uint32_t position) {
    while (ended_ < ends_.size() && program_->allocations[ends_[ended_]].end <= position) {
      give(ends_[ended_++]);
    }
    while (begun_ < begins_.size() && program_->allocations[begins_[begun_]].begin <= position) {
      take(begins_[begun_]);
      ++begun_;  // only what was taken
    }
    device_->settle();
  }

  /// After the last instruction: everything goes back.
  void finish() {
    while (ended_ < ends_.size()) {
      give(ends_[ended_++]);
    }
    begun_ = 0;
    ended_ = 0;
  }

  /// After a failure: returns what a broken-off segment still holds.
  void abandon() noexcept {
    for (; ended_ < ends_.size(); ++ended_) {
      if (is_live(ends_[ended_])) {
        give(ends_[ended_]);
      }
    }
    begun_ = 0;
    ended_ = 0;
  }

 private:
  /// Leases begin in order of their positions, so those taken so far are a prefix of `begins_`.
  bool is_live(std::uint32_t i) const noexcept { return begun_ > 0 && i <= begins_[begun_ - 1]; }

  void take(std::uint32_t i) {
    schedule::allocation const& a = program_->allocations[i];
    device_->lease(a.where, a.offset, a.bytes, a.what);
  }
  void give(std::uint32_t i) {
    schedule::allocation const& a = program_->allocations[i];
    device_->release(a.where, a.offset, a.bytes, a.what);
  }

  Device* device_;
  schedule::program const* program_;
  std::vector<std::uint32_t> begins_{};
  std::vector<std::uint32_t> ends_{};
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
};

}  // namespace protrain::inline v0::runtime::detail
