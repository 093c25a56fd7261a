// SPDX-License-Identifier: Apache-2.0
#pragma once
// The segments of a job, ready to run: addresses, leases and events of each.

#include "protrain/block/entry.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/device/device.hpp"
#include "protrain/runtime/detail/bindings.hpp"
#include "protrain/runtime/detail/leases.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/update/state_format.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// By instruction: whether another queue waits for it.
inline std::vector<std::uint8_t> announced(schedule::program const& p) {
  std::vector<std::uint8_t> out(p.instructions.size(), 0);
  for (schedule::instruction const& i : p.instructions) {
    for (std::uint32_t const d : p.dependencies_of(i)) {
      if (p.instructions[d].queue != i.queue) {
        out[d] = 1;
      }
    }
  }
  return out;
}

/// Two peaks one after the other, as a ledger sees them: the first position of the larger one counts.
inline void follow(schedule::memory_report& before, schedule::memory_report const& after) {
  if (after.peak > before.peak) {
    before.peak = after.peak;
    before.at_peak = after.at_peak;
    before.position = after.position;
  }
  for (std::size_t c = 0; c < category_count; ++c) {
    before.maximum[c] = std::max(before.maximum[c], after.maximum[c]);
  }
}

template <device::device Device>
struct loaded_segment {
  loaded_segment(Device& d,
                 schedule::program const& p,
                 chunk::layout const& l,
                 block::table const& model,
                 update::state_bytes const& bytes,
                 bases const& base,
                 std::uint32_t rank)
      : program(&p),
        bind(p, l, model, bytes, base, rank),
        memory(d, p),
        events(p.instructions.size()),
        waited_for(announced(p)),
        peak{schedule::memory_of(p, space::device), schedule::memory_of(p, space::host)} {}

  schedule::program const* program;
  bindings bind;
  leases<Device> memory;
  std::vector<device::event> events;
  std::vector<std::uint8_t> waited_for;
  std::array<schedule::memory_report, space_count> peak;
  bool ran = false;
};

/// All segments of a job. Carried memory is leased once, for all of them.
template <device::device Device>
class segments {
 public:
  explicit segments(Device& d) : device_(d) {}
  segments(segments const&) = delete;
  segments& operator=(segments const&) = delete;
  ~segments() {
    for (loaded_segment<Device>& s : all_) {
      s.memory.abandon();
    }
    for (schedule::allocation const* a : carried_) {
      device_.release(a->where, a->offset, a->bytes, a->what);
    }
  }

  /// `programs` stay where they are. Takes carried memory.
  void load(std::vector<schedule::program> const& programs,
            chunk::layout const& l,
            block::table const& model,
            update::state_bytes const& bytes,
            bases const& base,
            std::uint32_t rank) {
    for (schedule::program const& p : programs) {
      all_.emplace_back(device_, p, l, model, bytes, base, rank);
    }
    for (schedule::allocation const& a : programs.front().allocations) {
      if (a.carried) {
        device_.lease(a.where, a.offset, a.bytes, a.what);
        carried_.push_back(&a);
      }
    }
    device_.settle();
  }

  /// Null where the job has no such segment.
  loaded_segment<Device>* find(schedule::segment part) noexcept {
    for (loaded_segment<Device>& s : all_) {
      if (s.program->part == part) {
        return &s;
      }
    }
    return nullptr;
  }

  /// Before a segment runs, for `predicted`.
  void count(loaded_segment<Device>& s) {
    if (s.ran) {
      return;
    }
    s.ran = true;
    for (std::size_t k = 0; k < space_count; ++k) {
      follow(so_far_[k], s.peak[k]);
    }
  }

  /// Of the segments that ran; of the step before any did.
  schedule::memory_report predicted(space where) const {
    bool const any = std::ranges::any_of(all_, [](auto const& s) { return s.ran; });
    auto const k = static_cast<std::size_t>(where);
    return any ? so_far_[k] : all_.front().peak[k];
  }

  std::vector<schedule::allocation const*> const& carried() const noexcept { return carried_; }

 private:
  Device& device_;
  std::deque<loaded_segment<Device>> all_{};
  std::vector<schedule::allocation const*> carried_{};
  std::array<schedule::memory_report, space_count> so_far_{};
};

}  // namespace protrain::inline v0::runtime::detail
