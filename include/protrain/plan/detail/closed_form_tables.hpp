// SPDX-License-Identifier: Apache-2.0
#pragma once
// The closed form's time for every (persist, buffer) of one assignment, from prefix sums of its
// equations' terms.

#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/paper_time.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan::detail {

class closed_form_tables {
 public:
  constexpr explicit closed_form_tables(cost::paper_job const& j)
      : job_(j), gpu_(j.chunks.size() + 1, picoseconds{}), cpu_(gpu_) {
    for (std::size_t n = 0; n < chunks(); ++n) {
      gpu_[n + 1] = gpu_[n] + j.chunks[n].gpu_optimizer;
    }
    for (std::size_t n = chunks(); n-- > 0;) {
      cpu_[n] = cpu_[n + 1] + j.chunks[n].cpu_optimizer;
    }
  }

  /// Takes over the plan's recomputation and swapping; its persist and buffer don't matter.
  /// O(chunks).
  constexpr void assign(cost::paper_plan p) {
    p.numbers.buffer = 0;
    add_up_forward(p);
    add_up_backward(p);
  }

  /// (2) if backward took `backward`, whatever its terms. O(1).
  constexpr picoseconds iteration_with(std::uint32_t persist, picoseconds backward) const {
    return cost::iteration_time(job_,
                                {.forward = forward_[persist],
                                 .backward = backward,
                                 .gpu_optimizer = gpu_[persist],
                                 .cpu_optimizer = cpu_[persist]});
  }
  /// (2) with these numbers. O(1).
  constexpr picoseconds iteration(std::uint32_t persist, std::uint32_t buffer) const {
    return iteration_with(persist, backward(persist, buffer));
  }

  /// (5): stages whose leaving chunk is persistent, then the others; chunks from persist + 1 to
  /// N_chunk - buffer are fetched again, each a stage above its own.
  constexpr picoseconds backward(std::uint32_t persist, std::uint32_t buffer) const {
    std::size_t const resident = job_.drain && persist > 0 ? persist - 1 : persist;
    std::size_t const low = std::size_t{persist} + 1;
    std::size_t const high = buffer > chunks() ? 0 : chunks() + 1 - buffer;
    picoseconds sum = resident_[resident] + (offloaded_.back() - offloaded_[resident]);
    sum += high > low ? fetched_[high] - fetched_[low] : picoseconds{};
    return sum + (persist > 0 ? drain_resident_ : drain_moving_);
  }

 private:
  constexpr std::size_t chunks() const { return job_.chunks.size(); }

  /// (3) for every n_persist.
  constexpr void add_up_forward(cost::paper_plan& p) {
    p.numbers.persist = 0;
    forward_.assign(chunks() + 1, {});
    picoseconds moving = cost::detail::compute_forward(job_, chunks());
    for (std::size_t n = chunks(); n-- > 0;) {
      forward_[n + 1] = moving;
      moving +=
          std::max(cost::detail::compute_forward(job_, n), cost::prefetch_forward(job_, p, n + 1));
    }
    forward_[0] = moving;
    picoseconds persistent{};
    for (std::size_t n = 1; n <= chunks(); ++n) {
      persistent += cost::detail::compute_forward(job_, n - 1);
      forward_[n] += persistent;
    }
  }

  /// The terms of (5), summed up to each stage: with all chunks persistent, with all moving and
  /// none fetched again, and what fetching adds to the latter.
  constexpr void add_up_backward(cost::paper_plan& p) {
    auto const all = static_cast<std::uint32_t>(chunks());
    resident_.assign(chunks() + 2, {});
    offloaded_.assign(chunks() + 2, {});
    fetched_.assign(chunks() + 2, {});
    for (std::size_t i = 1; i <= chunks() + 1; ++i) {
      std::size_t const leaving = job_.drain ? i + 1 : i;
      picoseconds const compute = cost::detail::compute_backward(job_, p, i);
      p.numbers.persist = all;
      picoseconds const reduce = cost::reduce_offload(job_, p, leaving);
      p.numbers.persist = 0;
      picoseconds const offload = cost::reduce_offload(job_, p, leaving);
      picoseconds const fetch = cost::prefetch_backward(job_, p, i - 1);
      picoseconds const without = std::max(compute, offload);
      resident_[i] = resident_[i - 1] + std::max(compute, reduce);
      offloaded_[i] = offloaded_[i - 1] + without;
      fetched_[i] = fetched_[i - 1] + (std::max(compute, fetch + offload) - without);
    }
    drain_moving_ = job_.drain ? cost::reduce_offload(job_, p, 1) : picoseconds{};
    p.numbers.persist = all;
    drain_resident_ = job_.drain ? cost::reduce_offload(job_, p, 1) : picoseconds{};
  }

  cost::paper_job const& job_;
  std::vector<picoseconds> gpu_;  ///< by n_persist
  std::vector<picoseconds> cpu_;
  std::vector<picoseconds> forward_{};
  std::vector<picoseconds> resident_{};  ///< by stage
  std::vector<picoseconds> offloaded_{};
  std::vector<picoseconds> fetched_{};
  picoseconds drain_resident_{};
  picoseconds drain_moving_{};
};

}  // namespace protrain::inline v0::plan::detail
