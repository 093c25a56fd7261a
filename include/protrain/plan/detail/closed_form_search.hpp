// SPDX-License-Identifier: Apache-2.0
#pragma once
// Exhaustive over four numbers without adding up the equations for each: assignments in the order
// of a bound, times of all (persist, buffer) of one from prefix sums, and of buffers only the best.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_memory.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/plan/detail/closed_form_tables.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// The answer of the closed form.
struct closed_form {
  cost::paper_numbers at{};
  std::vector<activation::strategy> strategies{};  ///< by block
  picoseconds iteration{};                         ///< (2)
  bytes peak{};                                    ///< (11)
  bool operator==(closed_form const&) const = default;
};

namespace detail {

/// The least time that chunks may take within some room, as steps: ascending room, falling time.
class chunk_bound {
 public:
  struct step {
    std::uint64_t room = 0;
    picoseconds time{};
  };

  constexpr void add(std::uint64_t room, picoseconds time) { steps_.push_back({room, time}); }
  constexpr void finish() {
    std::ranges::sort(steps_, [](step const& a, step const& b) {
      return std::tie(a.room, a.time) < std::tie(b.room, b.time);
    });
    std::size_t kept = 0;
    for (step const& s : steps_) {
      if (kept == 0 || s.time < steps_[kept - 1].time) {
        steps_[kept++] = s;
      }
    }
    steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(kept), steps_.end());
  }

  constexpr std::uint64_t least_room() const { return steps_.front().room; }
  /// `room` is at least the least.
  constexpr picoseconds within(std::uint64_t room) const {
    auto const above = std::ranges::upper_bound(steps_, room, {}, &step::room);
    return (above - 1)->time;
  }

 private:
  std::vector<step> steps_{};
};

class closed_form_searcher {
 public:
  constexpr closed_form_searcher(cost::paper_job const& j, bytes capacity)
      : job_(j), pins_(cost::detail::pins_of(j)), capacity_(capacity), base_(j), tables_(j) {
    PROTRAIN_EXPECT(j.alpha > 0, "the factor of (11) is positive");
    PROTRAIN_EXPECT(j.buffers.size() == j.chunks.size() + 1, "buffers for each n_persist");
    room_ = capacity.value == 0 ? 0 : mul_div(capacity.value - 1, 1000, j.alpha);
    add_up_chunks();
    bound_chunks();
  }

  constexpr result<closed_form> run() {
    std::uint32_t const most = cost::most_swapped(job_);
    for (std::uint32_t s = 0; s <= most; ++s) {
      list_assignments(s);
    }
    std::ranges::sort(open_, [](assignment const& a, assignment const& b) {
      return std::tie(a.bound, a.swap, a.checkpoint) < std::tie(b.bound, b.swap, b.checkpoint);
    });
    for (assignment const& a : open_) {
      if (found_ && a.bound > best_time_) {
        break;
      }
      if (!found_ || hopeful(a)) {
        try_assignment(a);
      }
    }
    return answer();
  }

 private:
  /// A choice of swapping and checkpointing that leaves room for chunks.
  struct assignment {
    picoseconds bound{};
    picoseconds backward{};  ///< its compute
    std::uint64_t activations = 0;
    std::uint32_t swap = 0;
    std::uint32_t checkpoint = 0;
  };

  constexpr std::size_t chunks() const { return job_.chunks.size(); }

  /// By n_persist: bytes of chunks without buffers.
  constexpr void add_up_chunks() {
    chunk_bytes_.assign(chunks() + 1, 0);
    std::uint64_t slot = 0;
    for (std::size_t n = chunks(); n-- > 0;) {
      slot = std::max(slot, job_.chunks[n].own_slot.value);
      chunk_bytes_[n] = slot;
    }
    std::uint64_t persistent = 0;
    for (std::size_t n = 0; n <= chunks(); ++n) {
      chunk_bytes_[n] = checked_add(chunk_bytes_[n], persistent);
      persistent += n < chunks() ? job_.chunks[n].persistent.value : 0;
    }
  }

  /// Nothing is faster than to rebuild nothing, with no chunk slowed down by swapping.
  constexpr void bound_chunks() {
    cost::paper_plan p = cost::make_paper_plan(job_, {});
    std::ranges::fill(p.swap_forward, std::uint8_t{0});
    std::ranges::fill(p.swap_backward, std::uint8_t{0});
    base_.assign(std::move(p));
    for (std::uint32_t n = 0; n <= chunks(); ++n) {
      for (std::uint32_t b = job_.buffers[n].fewest; b <= job_.buffers[n].most; ++b) {
        least_.add(checked_add(chunk_bytes_[n], checked_mul(job_.buffer.value, b)),
                   base_.iteration(n, b));
      }
    }
    least_.finish();
  }

  /// Every n_checkpoint beside `swap`, ascending: another block is rebuilt each time.
  constexpr void list_assignments(std::uint32_t swap) {
    cost::paper_plan p = cost::detail::start_plan(job_, pins_, {.swap = swap});
    picoseconds forward{};
    picoseconds backward{};
    for (std::size_t b = 0; b < pins_.size(); ++b) {
      bool const again = p.strategies[b] == activation::strategy::checkpoint;
      forward += job_.blocks[b].forward;
      backward += job_.blocks[b].backward + (again ? job_.blocks[b].forward : picoseconds{});
    }
    bytes start = cost::current_memory_at_start(job_, p);
    std::uint32_t checkpoint = 0;
    list(p, start, forward, {.backward = backward, .swap = swap, .checkpoint = checkpoint});
    for (std::size_t b = 0; b < pins_.size(); ++b) {
      if (pins_[b] == trace::pin::free && p.strategies[b] == activation::strategy::keep) {
        p.strategies[b] = activation::strategy::checkpoint;
        backward += job_.blocks[b].forward;
        start -= job_.blocks[b].checkpoint_saving;
        list(p, start, forward, {.backward = backward, .swap = swap, .checkpoint = ++checkpoint});
      }
    }
  }

  /// Adds an assignment with its bound, unless it leaves no room.
  constexpr void list(cost::paper_plan const& p, bytes start, picoseconds forward, assignment a) {
    a.activations = cost::activation_peak(job_, p, start).value;
    std::uint64_t const need = checked_add(a.activations, least_.least_room());
    least_need_ = std::min(least_need_, need);
    if (need <= room_) {
      a.bound = std::max((forward + a.backward) * job_.micro_batches,
                         least_.within(room_ - a.activations));
      open_.push_back(a);
    }
  }

  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// The most buffers that fit beside `persist` persistent chunks, or none.
  constexpr std::uint32_t most_buffers(std::uint32_t persist, std::uint64_t activations) const {
    cost::paper_buffers const range = job_.buffers[persist];
    std::uint64_t const fixed = checked_add(activations, chunk_bytes_[persist]);
    if (fixed > room_) {
      return none;
    }
    std::uint64_t const one = std::max<std::uint64_t>(job_.buffer.value, 1);
    std::uint64_t const fit = job_.buffer.value == 0 ? range.most : (room_ - fixed) / one;
    return fit < range.fewest
               ? none
               : static_cast<std::uint32_t>(std::min<std::uint64_t>(range.most, fit));
  }

  /// A sharper bound, with updates: false when the assignment can't become the answer.
  constexpr bool hopeful(assignment const& a) const {
    for (std::uint32_t n = 0; n <= chunks(); ++n) {
      std::uint32_t const most = most_buffers(n, a.activations);
      if (most != none &&
          base_.iteration_with(n, std::max(a.backward, base_.backward(n, most))) <= best_time_) {
        return true;
      }
    }
    return false;
  }

  constexpr void try_assignment(assignment const& a) {
    tables_.assign(cost::make_paper_plan(job_, {.swap = a.swap, .checkpoint = a.checkpoint}));
    for (std::uint32_t persist = 0; persist <= chunks(); ++persist) {
      std::uint32_t const most = most_buffers(persist, a.activations);
      if (most != none) {
        try_persistence(a, persist, most);
      }
    }
  }

  /// More buffers never take longer: the most that fit, then the fewest that take as long.
  constexpr void try_persistence(assignment const& a, std::uint32_t persist, std::uint32_t high) {
    picoseconds const time = tables_.iteration(persist, high);
    if (found_ && time > best_time_) {
      return;
    }
    cost::paper_numbers n{persist, job_.buffers[persist].fewest, a.swap, a.checkpoint};
    while (n.buffer < high) {
      std::uint32_t const middle = n.buffer + (high - n.buffer) / 2;
      if (tables_.iteration(persist, middle) == time) {
        high = middle;
      } else {
        n.buffer = middle + 1;
      }
    }
    consider(n, time, a.activations + chunk_bytes_[persist] + job_.buffer.value * n.buffer);
  }

  constexpr void consider(cost::paper_numbers const& n, picoseconds time, std::uint64_t need) {
    std::uint64_t const peak = cost::peak_memory(job_, bytes{need}, {}).value;
    if (!found_ || std::tie(time, peak, n) < std::tie(best_time_, best_peak_, best_)) {
      found_ = true;
      best_ = n;
      best_time_ = time;
      best_peak_ = peak;
    }
  }

  constexpr result<closed_form> answer() const {
    if (!found_) {
      std::uint64_t const needs = cost::peak_memory(job_, bytes{least_need_}, {}).value + 1;
      return error{errc::no_device_memory,
                   "by the closed form no numbers fit the capacity",
                   needs - capacity_.value};
    }
    return closed_form{.at = best_,
                       .strategies = cost::detail::start_plan(job_, pins_, best_).strategies,
                       .iteration = best_time_,
                       .peak = {best_peak_}};
  }

  cost::paper_job const& job_;
  std::vector<trace::pin> pins_;
  bytes capacity_;
  closed_form_tables base_;                   ///< of no assignment
  closed_form_tables tables_;                 ///< of the one at hand
  std::uint64_t room_ = 0;                    ///< most bytes that (11) makes less than the capacity
  std::vector<std::uint64_t> chunk_bytes_{};  ///< by n_persist
  chunk_bound least_{};
  std::vector<assignment> open_{};
  std::uint64_t least_need_ = ~std::uint64_t{0};

  bool found_ = false;
  cost::paper_numbers best_{};
  picoseconds best_time_{};
  std::uint64_t best_peak_ = 0;
};

}  // namespace detail
}  // namespace protrain::inline v0::plan
