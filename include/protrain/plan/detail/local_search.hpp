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
#include <tuple>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Works on the results of a `searcher`.
template <class Search>
class local_search {
 public:
  explicit constexpr local_search(Search& s) : s_(s) {}

  /// Moves from a result to better neighbours until there are none, or the limit is met.
  constexpr void run(std::size_t start, std::uint32_t programs) {
    std::size_t const most = s_.programs_.results().size() + programs;
    at_ = start;
    for (std::uint32_t reach = 8; reach > 0; reach /= 2) {
      std::size_t from = Search::none;
      while (from != at_ && s_.may_compile(most)) {
        from = at_;
        list_neighbours(s_.programs_.results()[from].what, reach);
        try_neighbours(from, most);
      }
    }
  }

 private:
  /// The most promising first, until one is better than `from`.
  constexpr void try_neighbours(std::size_t from, std::size_t most) {
    std::sort(list_.begin(), list_.end(), [this](candidate const& a, candidate const& b) {
      return std::tuple(a.bound, a.least.device, s_.order_.key(a)) <
             std::tuple(b.bound, b.least.device, s_.order_.key(b));
    });
    for (candidate const& c : list_) {
      if (at_ != from || !s_.may_compile(most)) {
        return;
      }
      std::size_t const next = s_.evaluate(c);
      at_ = better(next, at_) ? next : at_;
    }
  }

  constexpr bool better(std::size_t a, std::size_t b) const {
    std::vector<scored> const& all = s_.programs_.results();
    bool const fits = s_.order_.fits(all[a]);
    return fits != s_.order_.fits(all[b]) ? fits : s_.order_.before(all[a], all[b]);
  }
  /// Than where the search is: it may fit, and its bound is no larger.
  constexpr bool promising(candidate const& c) const {
    scored const& here = s_.programs_.results()[at_];
    return c.least.device <= s_.order_.allowed.device && c.least.host <= s_.order_.allowed.host &&
           (!s_.order_.fits(here) || c.bound <= here.time);
  }

  constexpr void list_neighbours(candidate const& c, std::uint32_t reach) {
    list_.clear();
    activation::counts const n = s_.space_.counts[c.assignment];
    for (std::size_t const p : places_around(c.placement, reach)) {
      axis const buffers = s_.space_.buffer_axis(s_.space_.placements[p]);
      std::uint32_t const middle = clamp(c.buffers, buffers.low, buffers.high);
      for (std::uint32_t const b : around(middle, buffers, reach)) {
        for (std::uint32_t const swap : around(n.swap, s_.space_.swap_axis, reach)) {
          axis const checkpoint = s_.space_.checkpoint_axis(swap);
          std::uint32_t const most_like = clamp(n.checkpoint, checkpoint.low, checkpoint.high);
          for (std::uint32_t const k : around(most_like, checkpoint, reach)) {
            candidate like = c;
            like.placement = static_cast<std::uint32_t>(p);
            like.buffers = b;
            list_levels(like, {.swap = swap, .checkpoint = k, .levels = n.levels}, reach);
          }
        }
      }
    }
  }

  /// Beside other persistences as many updates are deferred as here, or as the rule says.
  constexpr std::vector<std::size_t> places_around(std::size_t placement, std::uint32_t reach) {
    placement_numbers const here = s_.space_.placed_as[placement];
    axis const all{0, static_cast<std::uint32_t>(s_.space_.persistences.size()) - 1};
    std::vector<std::size_t> out{};
    for (std::uint32_t const base : around(here.base, all, reach)) {
      axis const streamed = s_.space_.streamed_axis(base);
      std::uint32_t const like = clamp(here.streamed, streamed.low, streamed.high);
      for (std::uint32_t const count : around(like, streamed, reach)) {
        axis const defer = s_.space_.defer_axis(base, count);
        std::uint32_t const n = clamp(here.defer, defer.low, defer.high);
        bool const same = base == here.base && count == here.streamed;
        for (std::uint32_t const d :
             same ? around(n, defer, reach) : std::vector<std::uint32_t>{n}) {
          insert_sorted(out, s_.space_.placement(base, count, d));
        }
        insert_sorted(out, s_.space_.placement(base, count));
      }
    }
    return out;
  }

  constexpr void list_levels(candidate const& like,
                             activation::counts const& at,
                             std::uint32_t reach) {
    std::uint32_t const slots = s_.space_.gradient_slots[like.assignment];
    for (activation::counts const& c : level_neighbours(s_.space_, at, reach, s_.levels_)) {
      std::uint32_t const streaming = std::max(like.slots, s_.space_.streaming_slot_axis.high);
      candidate const next =
          s_.bounded(like.placement, s_.space_.assignment(c, slots), like.buffers, streaming);
      if (promising(next)) {
        list_.push_back(next);
      }
    }
  }

  Search& s_;
  std::size_t at_ = 0;  ///< a result
  std::vector<candidate> list_{};
};

}  // namespace protrain::inline v0::plan::detail
