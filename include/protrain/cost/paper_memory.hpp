// SPDX-License-Identifier: Apache-2.0
#pragma once
// The paper's peak memory, equations (8) to (11), one function each: [S] as the paper states it,
// [R] reconstructed, [I] our inference. An estimate that orders and explains; what fits is decided
// by a compiled program's extent. Operators are counted from 1 in the order of backward.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::cost {

namespace detail {

/// `at` after a signed change; never below 0.
constexpr bytes moved(bytes at, memory_delta by) {
  auto const size = static_cast<std::uint64_t>(by);
  return by < 0 ? at - bytes{~size + 1} : at + bytes{size};
}

constexpr paper_operator const& operator_at(paper_job const& j, std::size_t i) {
  PROTRAIN_EXPECT(i >= 1 && i <= j.operators.size(), "operators are counted from 1");
  return j.operators[i - 1];
}

}  // namespace detail

/// (8) [S] M_cur(0) = M_fwd_end + sum of M_act(i) - M_swap * n_swap - M_ckpt * n_ckpt. [I] Blocks
/// differ, so that the products are sums over the swapped and the checkpointed blocks.
constexpr bytes current_memory_at_start(paper_job const& j, paper_plan const& p) {
  bytes sum = j.forward_end;
  for (paper_operator const& o : j.operators) {
    sum += o.activations;
  }
  for (std::size_t b = 0; b < j.blocks.size(); ++b) {
    switch (p.strategies[b]) {
      case activation::strategy::keep:
        break;
      case activation::strategy::swap:
        sum -= j.blocks[b].swap_saving;
        break;
      case activation::strategy::checkpoint:
        sum -= j.blocks[b].checkpoint_saving;
        break;
    }
  }
  return sum;
}

/// (9) [R] M_cur(i) = M_cur(i-1) + d_cur_prior(i) + d_cur_op(i) - (M_act(i) if operator i is in a
/// kept block, else 0). A swapped block adds nothing: it comes back when memory allows. `before` is
/// M_cur(i-1).
constexpr bytes current_memory(paper_job const& j,
                               paper_plan const& p,
                               std::size_t i,
                               bytes before) {
  paper_operator const& o = detail::operator_at(j, i);
  bool const kept = p.strategies[o.block] == activation::strategy::keep;
  return detail::moved(before, o.current_prior + o.current_own) - (kept ? o.activations : bytes{});
}

/// (10) [S] M_peak(i) = max(M_peak(i-1), M_cur(i-1) + d_peak_prior(i), M_cur(i-1) + d_cur_prior(i)
/// + d_peak_op(i) + [i is the first backward operator of a checkpointed block] * M_ckpt). `before`
/// is M_cur(i-1), `peak` M_peak(i-1).
constexpr bytes peak_memory(
    paper_job const& j, paper_plan const& p, std::size_t i, bytes before, bytes peak) {
  paper_operator const& o = detail::operator_at(j, i);
  bool const again = o.first && p.strategies[o.block] == activation::strategy::checkpoint;
  bytes const rebuilt = again ? j.blocks[o.block].checkpoint_saving : bytes{};
  bytes const prior = detail::moved(before, o.peak_prior);
  bytes const own = detail::moved(before, o.current_prior + o.peak_own) + rebuilt;
  return std::max(peak, std::max(prior, own));
}

/// M_peak of the last operator: (9) and (10) over all, from M_cur(0) = `start`. O(operators).
constexpr bytes activation_peak(paper_job const& j, paper_plan const& p, bytes start) {
  bytes current = start;
  bytes peak = start;
  for (std::size_t i = 1; i <= j.operators.size(); ++i) {
    peak = peak_memory(j, p, i, current, peak);
    current = current_memory(j, p, i, current);
  }
  return peak;
}

/// The same with (8) as the start.
constexpr bytes activation_peak(paper_job const& j, paper_plan const& p) {
  return activation_peak(j, p, current_memory_at_start(j, p));
}

/// M_persist * n_persist + M_buffer * n_buffer of (11). [I] Chunks differ, so that the first
/// product is a sum; one slot serves all oversize chunks that move.
constexpr bytes chunk_memory(paper_job const& j, paper_numbers const& n) {
  bytes sum = j.buffer * n.buffer;
  bytes slot{};
  for (std::size_t i = 0; i < j.chunks.size(); ++i) {
    if (i < n.persist) {
      sum += j.chunks[i].persistent;
    } else {
      slot = std::max(slot, j.chunks[i].own_slot);
    }
  }
  return sum + slot;
}

/// (11) [S] M_peak <- (M_peak + M_persist * n_persist + M_buffer * n_buffer) * alpha, rounded up.
constexpr bytes peak_memory(paper_job const& j, bytes activations, bytes chunks) {
  return {ceil_div(checked_mul((activations + chunks).value, j.alpha), 1000)};
}

/// (11) of a plan. O(operators + blocks + chunks).
constexpr bytes peak_memory(paper_job const& j, paper_plan const& p) {
  return peak_memory(j, activation_peak(j, p), chunk_memory(j, p.numbers));
}

}  // namespace protrain::inline v0::cost
