// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which updates are streamed: the second half of a search, beginning from the best plan without.

#include "protrain/core/units.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Works on the candidates and the incumbent of a `searcher`.
template <class Search>
class split_search {
 public:
  explicit constexpr split_search(Search& s) : s_(s) {}

  /// `proven`: no plan that streams nothing is better than the incumbent. Answers whether no plan
  /// at all is.
  constexpr bool run(bool proven) {
    climb();
    return proven && collect() && descend();
  }

 private:
  /// Persistences times numbers of streamed updates, and bounds of candidates; beyond, they are not
  /// all looked at.
  static constexpr std::uint64_t most_pairs = 4096;
  static constexpr std::uint64_t most_bounds = 1U << 18U;

  constexpr bool found() const { return s_.best_ != Search::none; }
  constexpr candidate const& best() const { return s_.programs_.results()[s_.best_].what; }

  constexpr void try_one(candidate const& like, std::uint32_t streamed) {
    std::size_t const at = s_.space_.placement(s_.space_.base_of(like.placement), streamed);
    candidate const next = s_.bounded(at, like.assignment, like.buffers);
    if (!s_.hopeless(next)) {
      s_.evaluate(next);
    }
  }

  /// Other numbers of streamed updates in the best plan, in ever smaller steps.
  constexpr void climb() {
    if (!found()) {
      return;
    }
    std::uint32_t reach = s_.space_.placed_as[best().placement].moving;
    while (reach > 0) {
      std::size_t const before = s_.best_;
      candidate const from = best();
      axis const all = s_.space_.streamed_axis(s_.space_.base_of(from.placement));
      for (std::uint32_t const n :
           around(s_.space_.placed_as[from.placement].streamed, all, reach)) {
        try_one(from, n);
      }
      reach = s_.best_ != before && reach == 1 ? 1 : reach / 2;
    }
  }

  /// No strategies are cheaper in any respect.
  constexpr cost::assigned cheapest() const {
    cost::assigned out = s_.space_.assignments.front();
    for (cost::assigned const& a : s_.space_.assignments) {
      out.swap_in = std::min(out.swap_in, a.swap_in);
      out.swap_out = std::min(out.swap_out, a.swap_out);
      for (std::size_t b = 0; b < out.backward.size(); ++b) {
        out.backward[b] = std::min(out.backward[b], a.backward[b]);
      }
    }
    return out;
  }

  constexpr bool slower(picoseconds bound) const {
    return found() && bound > s_.programs_.results()[s_.best_].time;
  }

  /// Every candidate that may be better. False when there are too many to look at.
  constexpr bool collect() {
    std::uint64_t pairs = 0;
    for (std::size_t base = 0; base < s_.space_.persistences; ++base) {
      pairs += s_.space_.streamed_axis(base).high;
    }
    if (pairs > most_pairs) {
      return false;
    }
    cost::assigned const least = cheapest();
    for (std::size_t base = 0; base < s_.space_.persistences; ++base) {
      for (std::uint32_t n = 1; n <= s_.space_.streamed_axis(base).high; ++n) {
        cost::placed const p = s_.space_.with_streamed(s_.space_.placements[base].persistent, n);
        if (!slower(cost::lower_bound(s_.space_.step, p, least, s_.space_.buffer_axis(p).high))) {
          collect(s_.space_.placement(base, n));
        }
        if (bounds_ > most_bounds) {
          return false;
        }
      }
    }
    return true;
  }

  /// The fewer buffers, the larger the bound.
  constexpr void collect(std::size_t placement) {
    axis const buffers = s_.space_.buffer_axis(s_.space_.placements[placement]);
    for (std::size_t a = 0; a < s_.space_.assignments.size() && bounds_ <= most_bounds; ++a) {
      for (std::uint32_t b = buffers.high + 1; b-- > buffers.low;) {
        ++bounds_;
        candidate const next = s_.bounded(placement, a, b);
        if (slower(next.bound)) {
          break;
        }
        if (!s_.hopeless(next)) {
          candidates_.push_back(next);
        }
      }
    }
  }

  /// Compiles them in the order of their bounds. True when none is left that may be better.
  constexpr bool descend() {
    std::sort(
        candidates_.begin(), candidates_.end(), [this](candidate const& x, candidate const& y) {
          return std::tuple(x.bound, x.least.device, s_.key(x)) <
                 std::tuple(y.bound, y.least.device, s_.key(y));
        });
    std::size_t const most = s_.programs_.results().size() + s_.limits_.splits;
    for (candidate const& c : candidates_) {
      if (slower(c.bound)) {
        return true;
      }
      if (s_.hopeless(c)) {
        continue;
      }
      if (s_.programs_.results().size() >= most) {
        s_.open_ = std::min(s_.open_, c.bound);
        return false;
      }
      s_.evaluate(c);
    }
    return true;
  }

  Search& s_;
  std::vector<candidate> candidates_{};
  std::uint64_t bounds_ = 0;
};

}  // namespace protrain::inline v0::plan::detail
