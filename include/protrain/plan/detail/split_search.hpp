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

/// Works on the incumbent of a `searcher`. A pair is a persistence and a number of streamed updates;
/// its bound is that of no strategies and all buffers.
template <class Search>
class split_search {
 public:
  explicit constexpr split_search(Search& s) : s_(s) {}

  /// `proven`: no plan that streams nothing is better than the incumbent. Answers whether no plan
  /// at all is.
  constexpr bool run(bool proven) {
    list_pairs();
    if (pairs_.empty() || slower(floor())) {
      return proven;
    }
    scout();
    if (proven && stride_ == 1 && collect() && descend()) {
      return true;
    }
    s_.open_ = std::min(s_.open_, stride_ == 1 ? floor() : compute());
    return false;
  }

 private:
  struct pair {
    std::size_t base = 0;
    std::uint32_t streamed = 0;
    picoseconds bound{};
  };
  /// Beyond, not all pairs are looked at, nor all candidates of a pair.
  static constexpr std::uint64_t most_pairs = 4096;
  static constexpr std::uint64_t most_scouted = 256;
  static constexpr std::uint64_t most_bounds = 1U << 15U;

  constexpr bool found() const { return s_.best_ != Search::none; }
  constexpr bool slower(picoseconds bound) const {
    return found() && bound > s_.programs_.results()[s_.best_].time;
  }
  constexpr picoseconds floor() const { return pairs_.front().bound; }
  /// Of all plans.
  constexpr picoseconds compute() const {
    return (s_.space_.step.forward + cheapest().backward.front()) * s_.space_.step.micro_batches;
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

  constexpr std::uint64_t count_pairs(std::uint32_t stride) const {
    std::uint64_t n = 0;
    for (std::size_t base = 0; base < s_.space_.persistences; base += stride) {
      n += s_.space_.streamed_axis(base).high / stride;
    }
    return n;
  }

  /// In the order of their bounds.
  constexpr void list_pairs() {
    while (count_pairs(stride_) > most_pairs) {
      ++stride_;
    }
    cost::assigned const least = cheapest();
    for (std::size_t base = 0; base < s_.space_.persistences; base += stride_) {
      std::uint32_t const most = s_.space_.streamed_axis(base).high;
      for (std::uint32_t n = stride_; n <= most; n += stride_) {
        cost::placed const p = s_.space_.with_streamed(s_.space_.placements[base].persistent, n);
        std::uint32_t const buffers = s_.space_.buffer_axis(p).high;
        pairs_.push_back({base, n, cost::lower_bound(s_.space_.step, p, least, buffers)});
      }
    }
    std::sort(pairs_.begin(), pairs_.end(), [](pair const& a, pair const& b) {
      return std::tuple(a.bound, a.base, a.streamed) < std::tuple(b.bound, b.base, b.streamed);
    });
  }

  constexpr bool earlier(candidate const& a, candidate const& b) const {
    return std::tuple(a.bound, a.least.device, s_.order_.key(a)) <
           std::tuple(b.bound, b.least.device, s_.order_.key(b));
  }
  constexpr void sort() {
    std::sort(candidates_.begin(),
              candidates_.end(),
              [this](candidate const& a, candidate const& b) { return earlier(a, b); });
  }

  /// As many buffers as fit.
  constexpr std::uint32_t roomy_buffers(std::size_t placement, std::size_t assignment) {
    cost::placed const& p = s_.space_.placements[placement];
    axis const all = s_.space_.buffer_axis(p);
    std::uint64_t const room = s_.order_.allowed.device;
    std::uint64_t const least = s_.programs_.least_memory(placement, assignment, all.low).device;
    if (least > room || p.buffer_bytes == 0) {
      return all.low;
    }
    return clamp(all.low + (room - least) / p.buffer_bytes, all.low, all.high);
  }

  /// Of each pair the most promising candidate that fits, and the one with the incumbent's
  /// strategies.
  constexpr void scout() {
    for (std::size_t i = 0; i < pairs_.size() && i < most_scouted; ++i) {
      if (slower(pairs_[i].bound)) {
        break;
      }
      std::size_t const at = s_.space_.placement(pairs_[i].base, pairs_[i].streamed);
      s_.programs_.take_placements();
      std::size_t best = Search::none;  // of the candidates
      for (std::size_t a = 0; a < s_.space_.assignments.size(); ++a) {
        candidate const next = s_.bounded(at, a, roomy_buffers(at, a));
        bool const like_best = found() && a == s_.programs_.results()[s_.best_].what.assignment;
        if (s_.hopeless(next)) {
          continue;
        }
        if (like_best || best == Search::none) {
          candidates_.push_back(next);
          best = best == Search::none ? candidates_.size() - 1 : best;
        } else if (earlier(next, candidates_[best])) {
          candidates_[best] = next;
        }
      }
    }
    sort();
    compile_in_order(s_.limits_.splits, ~std::uint64_t{0});
    candidates_ = {};
  }

  /// Every candidate that may be better. False when there are too many to look at.
  constexpr bool collect() {
    auto const open = static_cast<std::uint64_t>(
        std::ranges::count_if(pairs_, [this](pair const& p) { return !slower(p.bound); }));
    if (open * s_.space_.assignments.size() > most_bounds) {
      return false;
    }
    for (pair const& p : pairs_) {
      if (slower(p.bound)) {
        return true;
      }
      collect(s_.space_.placement(p.base, p.streamed));
      if (bounds_ > most_bounds) {
        return false;
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

  constexpr bool descend() {
    sort();
    return compile_in_order(~std::size_t{0}, s_.limits_.proof);
  }

  /// So many programs or instructions at most. True when no candidate is left that may be better.
  constexpr bool compile_in_order(std::size_t programs, std::uint64_t instructions) {
    for (candidate const& c : candidates_) {
      if (slower(c.bound)) {
        return true;
      }
      if (s_.hopeless(c)) {
        continue;
      }
      if (programs-- == 0) {
        return false;
      }
      std::uint64_t const size = s_.programs_.results()[s_.evaluate(c)].instructions;
      if (size >= instructions) {
        return false;
      }
      instructions -= size;
    }
    return true;
  }

  Search& s_;
  std::vector<pair> pairs_{};
  std::vector<candidate> candidates_{};
  std::uint64_t bounds_ = 0;
  std::uint32_t stride_ = 1;
};

}  // namespace protrain::inline v0::plan::detail
