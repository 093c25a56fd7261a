// SPDX-License-Identifier: Apache-2.0
#pragma once
// The decisions of the paper's equation (1), and what follows from them before any time or memory
// is added up: the blocks' strategies, recomputation, and which chunks move while activations swap.

#include "protrain/activation/assignment.hpp"
#include "protrain/activation/strategy.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

/// N_interval, inferred: blocks whose forward runs while one is swapped out, at least 1 and at most
/// `most`.
constexpr std::uint32_t swap_interval(picoseconds swap_out,
                                      picoseconds forward,
                                      std::uint32_t most) {
  std::uint64_t const blocks = forward.value == 0 ? most : ceil_div(swap_out.value, forward.value);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(blocks, 1, std::max(most, 1U)));
}

/// One choice of numbers for a job. Stages are counted as the equations count chunks, from 1; each
/// vector by stage has entries 0 to N_chunk + 1.
struct paper_plan {
  paper_numbers numbers{};
  std::vector<activation::strategy> strategies{};  ///< by block
  std::vector<picoseconds> recompute{};            ///< T_recomp, by stage
  std::vector<std::uint8_t> swap_forward{};        ///< by stage: a swap-out runs beside its forward
  std::vector<std::uint8_t> swap_backward{};       ///< by stage: a swap-in runs beside its backward
  bool operator==(paper_plan const&) const = default;
};

namespace detail {

/// A stretch of a phase, on the clock of its compute.
struct window {
  picoseconds start{};
  picoseconds end{};
};

constexpr std::vector<trace::pin> pins_of(paper_job const& j) {
  std::vector<trace::pin> out{};
  out.reserve(j.blocks.size());
  for (paper_block const& b : j.blocks) {
    out.push_back(b.pinned);
  }
  return out;
}

/// Each begins when its block's forward has ended and the copy before is done.
constexpr std::vector<window> swap_outs(paper_job const& j,
                                        std::span<activation::strategy const> how) {
  std::vector<window> out{};
  picoseconds now{};
  picoseconds idle{};
  for (std::size_t b = 0; b < how.size(); ++b) {
    now += j.blocks[b].forward;
    if (how[b] == activation::strategy::swap) {
      picoseconds const start = std::max(now, idle);
      idle = start + j.blocks[b].swap_out;
      out.push_back({start, idle});
    }
  }
  return out;
}

/// Each ends when its block's backward begins, or earlier if the copy behind it needs the time: the
/// latest moment, as memory is scarce.
constexpr std::vector<window> swap_ins(paper_job const& j,
                                       std::span<activation::strategy const> how) {
  picoseconds now{};
  for (std::size_t b = 1; b < how.size(); ++b) {
    bool const again = how[b] == activation::strategy::checkpoint;
    now += j.blocks[b].backward + (again ? j.blocks[b].forward : picoseconds{});
  }
  std::vector<window> out{};
  picoseconds deadline = now;
  for (std::size_t b = 0; b < how.size(); ++b) {
    if (how[b] == activation::strategy::swap) {
      picoseconds const end = std::min(now, deadline);
      deadline = end - std::min(end, j.blocks[b].swap_in);
      out.push_back({deadline, end});
    }
    if (b + 1 < how.size()) {
      bool const again = how[b + 1] == activation::strategy::checkpoint;
      now = now - j.blocks[b + 1].backward - (again ? j.blocks[b + 1].forward : picoseconds{});
    }
  }
  std::ranges::reverse(out);
  return out;
}

/// Follows stages through time and says which of them meet a window. Windows are in order and
/// don't overlap.
struct overlap_walk {
  std::span<window const> windows;
  picoseconds now{};
  std::size_t at = 0;
  constexpr bool next(picoseconds length) {
    picoseconds const start = now;
    now += length;
    while (at < windows.size() && windows[at].end <= start) {
      ++at;
    }
    return length.value > 0 && at < windows.size() && windows[at].start < now &&
           windows[at].start < windows[at].end;
  }
};

constexpr void mark_forward(paper_plan& p, paper_job const& j) {
  std::vector<window> const windows = swap_outs(j, p.strategies);
  overlap_walk walk{windows};
  for (std::size_t i = 1; i <= j.chunks.size() && !windows.empty(); ++i) {
    p.swap_forward[i] = walk.next(j.chunks[i - 1].forward) ? 1 : 0;
  }
}

constexpr void mark_backward(paper_plan& p, paper_job const& j) {
  std::vector<window> const windows = swap_ins(j, p.strategies);
  overlap_walk walk{windows};
  for (std::size_t i = j.chunks.size(); i > 0 && !windows.empty(); --i) {
    p.swap_backward[i] = walk.next(j.chunks[i - 1].backward + p.recompute[i]) ? 1 : 0;
  }
}

/// A plan with strategies, all that memory depends on. `pins` are the blocks'.
constexpr paper_plan start_plan(paper_job const& j,
                                std::span<trace::pin const> pins,
                                paper_numbers const& n) {
  PROTRAIN_EXPECT(n.persist <= j.chunks.size(), "more persistent chunks than there are");
  return {.numbers = n,
          .strategies = activation::interleaved{}.assign(
              pins, {.swap = n.swap, .checkpoint = n.checkpoint, .interval = j.interval})};
}

/// Adds what times depend on.
constexpr void finish_plan(paper_plan& p, paper_job const& j) {
  p.recompute.assign(j.chunks.size() + 2, picoseconds{});
  p.swap_forward.assign(j.chunks.size() + 2, 0);
  p.swap_backward.assign(j.chunks.size() + 2, 0);
  for (std::size_t b = 0; b < j.blocks.size(); ++b) {
    bool const again = p.strategies[b] == activation::strategy::checkpoint;
    p.recompute[j.blocks[b].chunk + 1] += again ? j.blocks[b].forward : picoseconds{};
  }
  mark_forward(p, j);
  mark_backward(p, j);
}

}  // namespace detail

/// Largest n_swap with which swapping hides behind compute: the last copy out ends before forward
/// does, and every copy in is done when its block's backward begins. This is why (3) has no term
/// for swapping. O(blocks).
constexpr std::uint32_t most_swapped(paper_job const& j) {
  picoseconds forward{};
  picoseconds backward{};  // from the last block to the start of block b's backward
  for (paper_block const& b : j.blocks) {
    forward += b.forward;
    backward += b.backward;
  }
  picoseconds now{};
  picoseconds idle{};
  picoseconds deadline = backward;
  std::uint32_t free = 0;
  std::uint32_t n = 0;
  for (paper_block const& b : j.blocks) {
    now += b.forward;
    backward = backward - b.backward;
    bool const here = b.pinned == trace::pin::free && free % j.interval == 0;
    free += b.pinned == trace::pin::free ? 1U : 0U;
    if (!here) {
      continue;
    }
    idle = std::max(now, idle) + b.swap_out;
    deadline = std::min(deadline, backward);
    if (idle > forward || b.swap_in > deadline) {
      return n;
    }
    deadline = deadline - b.swap_in;
    ++n;
  }
  return n;
}

/// What follows from `n`: the interleaved layout, and the chunks that swapping touches. A chunk is
/// touched where it moves beside the compute of a stage during which activations move. O(blocks +
/// chunks).
constexpr paper_plan make_paper_plan(paper_job const& j, paper_numbers const& n) {
  paper_plan out = detail::start_plan(j, detail::pins_of(j), n);
  detail::finish_plan(out, j);
  return out;
}

/// The same for blocks that another policy assigned; `n.swap` and `n.checkpoint` are only names.
constexpr paper_plan make_paper_plan(paper_job const& j,
                                     paper_numbers const& n,
                                     std::vector<activation::strategy> strategies) {
  PROTRAIN_EXPECT(n.persist <= j.chunks.size(), "more persistent chunks than there are");
  PROTRAIN_EXPECT(strategies.size() == j.blocks.size(), "one strategy per block");
  paper_plan out{.numbers = n, .strategies = std::move(strategies)};
  detail::finish_plan(out, j);
  return out;
}

}  // namespace protrain::inline v0::cost
