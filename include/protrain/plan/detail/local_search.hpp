// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a search does where it can't prove its answer: look around the best candidate.

#include "protrain/activation/assignment.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/detail/level_axes.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Works on the incumbent of a `searcher`.
template <class Search>
class local_search {
 public:
  explicit constexpr local_search(Search& s) : s_(s) {}

  /// Moves to the best neighbour until there is none, or the limit is met.
  constexpr void run(std::uint32_t programs) {
    std::size_t const most = s_.programs_.results().size() + programs;
    std::size_t from = Search::none;
    for (std::uint32_t reach = std::max<std::uint32_t>(s_.stride_, 4); reach > 0; reach /= 2) {
      from = Search::none;
      while (from != s_.best_ && s_.programs_.results().size() < most) {
        from = s_.best_;
        try_neighbours(s_.programs_.results()[from].what, reach, most);
      }
    }
  }

 private:
  /// By value: evaluating moves the results that it came from.
  constexpr void try_neighbours(candidate c, std::uint32_t reach, std::size_t most) {
    activation::counts const n = s_.space_.counts[c.assignment];
    axis const persist{0, s_.space_.persistences - 1};
    auto const base = static_cast<std::uint32_t>(s_.space_.base_of(c.placement));
    std::vector<std::size_t> places{};
    for (std::uint32_t const p : around(base, persist, reach)) {
      axis streamed = s_.space_.streamed_axis(p);
      std::uint32_t const like =
          clamp(s_.space_.placed_as[c.placement].streamed, streamed.low, streamed.high);
      streamed = like == 0 ? axis{} : streamed;  // split_search has tried some
      for (std::uint32_t const count : around(like, streamed, reach)) {
        places.push_back(s_.space_.placement(p, count));
      }
    }
    for (std::size_t const p : places) {
      axis const buffers = s_.space_.buffer_axis(s_.space_.placements[p]);
      std::uint32_t const middle = clamp(c.buffers, buffers.low, buffers.high);
      for (std::uint32_t const b : around(middle, buffers, reach)) {
        for (std::uint32_t const swap : around(n.swap, s_.space_.swap_axis, reach)) {
          axis const checkpoint = s_.space_.checkpoint_axis(swap);
          std::uint32_t const most_like = clamp(n.checkpoint, checkpoint.low, checkpoint.high);
          for (std::uint32_t const k : around(most_like, checkpoint, reach)) {
            try_levels(p, b, {.swap = swap, .checkpoint = k, .levels = n.levels}, reach, most);
          }
        }
      }
    }
  }

  constexpr void try_levels(std::size_t placement,
                            std::uint32_t buffers,
                            activation::counts const& at,
                            std::uint32_t reach,
                            std::size_t most) {
    for (activation::counts const& c : level_neighbours(s_.space_, at, reach, s_.levels_)) {
      candidate const next = s_.bounded(placement, s_.space_.assignment(c), buffers);
      if (s_.programs_.results().size() < most && !s_.hopeless(next)) {
        s_.evaluate(next);
      }
    }
  }

  Search& s_;
};

}  // namespace protrain::inline v0::plan::detail
