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
    carried_.reserve(programs.front().allocations.size());  // what is leased is written down
    for (schedule::allocation const& a : programs.front().allocations) {
      if (a.carried) {
        device_.lease(a.where, a.offset, a.bytes, a.what);
        carried_.push_back(&a);
      }
    }
    device_.settle();
  }

  /// The segment, or else `other`, which the job then has.
  loaded_segment<Device>& either(schedule::segment part, schedule::segment other) {
    loaded_segment<Device>* found = find(part);
    found = found != nullptr ? found : find(other);
    PROTRAIN_EXPECT(found != nullptr, "an engine without a segment that its plan has");
    return *found;
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

  /// All instructions in program order, each behind what it waits for; `task` with its index is
  /// what an instruction does.
  void submit(loaded_segment<Device>& s, device::task task) {
    schedule::program const& p = *s.program;
    for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
      schedule::instruction const& at = p.instructions[i];
      s.memory.advance(i);
      for (std::uint32_t const d : p.dependencies_of(at)) {
        if (p.instructions[d].queue != at.queue) {
          device_.wait(at.queue, s.events[d]);
        }
      }
      task.index = i;
      device_.submit(at.queue, s.bind.touched_by(i), task);
      if (s.waited_for[i] != 0) {
        s.events[i] = device_.record(at.queue);
      }
    }
  }

  /// Before a segment runs, for `predicted`.
  void count(loaded_segment<Device>& s) {
    if (s.ran) {
      return;
    }
    s.ran = true;
    for (std::size_t k = 0; k < space_count; ++k) {
      schedule::follow(so_far_[k], s.peak[k]);
    }
  }

  /// Of the segments that ran; of a step from a fresh start before any did.
  schedule::memory_report predicted(space where) const {
    bool const any = std::ranges::any_of(all_, [](auto const& s) { return s.ran; });
    auto const k = static_cast<std::size_t>(where);
    if (any) {
      return so_far_[k];
    }
    schedule::memory_report step;
    for (loaded_segment<Device> const& s : all_) {
      if (schedule::trains(s.program->part) && !schedule::resumes(s.program->part)) {
        schedule::follow(step, s.peak[k]);
      }
    }
    return step;
  }

  std::vector<schedule::allocation const*> const& carried() const noexcept { return carried_; }

 private:
  Device& device_;
  std::deque<loaded_segment<Device>> all_{};
  std::vector<schedule::allocation const*> carried_{};
  std::array<schedule::memory_report, space_count> so_far_{};
};

}  // namespace protrain::inline v0::runtime::detail
