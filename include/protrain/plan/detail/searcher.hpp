// SPDX-License-Identifier: Apache-2.0
#pragma once
// The search itself: candidates in the order of their bounds, an incumbent, and a cap.

#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/answers.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/detail/level_axes.hpp"
#include "protrain/plan/detail/local_search.hpp"
#include "protrain/plan/detail/split_search.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

template <class Policies>
class searcher {
 public:
  constexpr searcher(space_of<Policies>& all,
                     hw::machine const& m,
                     budget const& b,
                     limits const& most)
      : space_(all),
        machine_(m),
        budget_(b),
        order_{all, allowance_of(b, all.facts, m)},
        limits_(most),
        programs_(all, m) {}

  constexpr result<plan, infeasible> run() {
    try_fixed();
    enumerate();
    bool proven = settle_splits(settle(true));
    if (space_.depth > 0 && !space_.wanted.levels) {
      levels_ = true;
      try_uniform_levels();
      bool const all = enumerate_levels();
      proven = settle_splits(settle(all) && proven);
    }
    answers<Policies> const out{space_, machine_, budget_, order_, programs_, fixed_};
    if (best_ == none) {
      return out.shortage(programs_.results()[least_]);
    }
    return out.answer(best_,
                      {.candidates = static_cast<std::uint32_t>(candidates_.size()),
                       .compiled = static_cast<std::uint32_t>(programs_.results().size()),
                       .proven = proven,
                       .bound = std::min(open_, programs_.results()[best_].time)});
  }

 private:
  template <class>
  friend class local_search;
  template <class>
  friend class split_search;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  // --- candidates

  /// Compiles a candidate unless that was done before; returns its position in the results.
  constexpr std::size_t evaluate(candidate const& c) {
    std::size_t const at = programs_.evaluate(c);
    scored const& s = programs_.results()[at];
    if (order_.fits(s) && (best_ == none || order_.before(s, programs_.results()[best_]))) {
      best_ = at;
    }
    return at;
  }

  constexpr candidate bounded(std::size_t placement,
                              std::size_t assignment,
                              std::uint32_t buffers) {
    candidate out{.placement = static_cast<std::uint32_t>(placement),
                  .assignment = static_cast<std::uint32_t>(assignment),
                  .buffers = buffers};
    cost::placed const& p = space_.placements[placement];
    cost::assigned const& a = space_.assignments[assignment];
    out.bound = cost::lower_bound(space_.step, p, a, buffers);
    programs_.take_placements();
    out.least = programs_.least_memory(placement, assignment, buffers);
    return out;
  }

  // --- fixed policies

  /// A fixed policy, where the request leaves it to the search.
  constexpr candidate fixed_candidate(request const& r) {
    auto const within = [](std::uint64_t wanted, axis const& a) {
      return clamp(wanted, a.low, a.high);
    };
    std::uint32_t const persist = within(*r.persist, space_.persist_axis);
    std::size_t const placement = persist - space_.persist_axis.low;
    std::uint32_t const swap = within(*r.swap, space_.swap_axis);
    std::uint32_t const checkpoint = within(*r.checkpoint, space_.checkpoint_axis(swap));
    std::uint32_t const buffers =
        within(*r.buffer, space_.buffer_axis(space_.placements[placement]));
    return bounded(placement, space_.assignment(swap, checkpoint), buffers);
  }

  constexpr void try_fixed() {
    for (fixed_policy const& f : fixed_policies()) {
      fixed_.push_back({f.name, evaluate(fixed_candidate(f.what))});
    }
  }

  /// Every block at one level, where everything is persistent and where nothing is.
  constexpr void try_uniform_levels() {
    for (request const& r : {keep_all(), offload_all()}) {
      candidate const like = fixed_candidate(r);
      for (std::uint32_t k = 1; k <= space_.depth; ++k) {
        activation::counts c = space_.counts[like.assignment];
        c.levels[k - 1] = space_.level_axis(k).high;
        evaluate(bounded(like.placement, space_.assignment(c), like.buffers));
      }
    }
  }

  // --- best first

  /// Compiles what was enumerated since the last time: the best of it if a plan fits, else the one
  /// that lacks least. `all`: nothing was left out. True when nothing is better.
  constexpr bool settle(bool all) {
    bool proven = descend() && all;
    if (best_ == none) {
      proven = split_updates(proven);  // some need less host memory
    }
    if (best_ == none) {
      find_least();
    }
    if (best_ != none && !proven) {
      local_search<searcher>(*this).run(limits_.refinements);
    }
    return proven;
  }

  /// Streamed updates, beside the best plan without them. True when nothing is better.
  constexpr bool settle_splits(bool proven) {
    if (best_ == none) {
      return proven;
    }
    std::size_t const unsplit = best_;
    proven = split_updates(proven);
    if (!proven && best_ != unsplit) {
      local_search<searcher>(*this).run(limits_.splits);
    }
    return proven;
  }

  constexpr std::uint64_t count_candidates(std::uint32_t stride) const {
    std::uint64_t pairs = 0;
    for (std::uint32_t const s : values(space_.swap_axis, stride)) {
      pairs += values(space_.checkpoint_axis(s), stride).size();
    }
    return checked_mul(pairs, count_placed(stride));
  }
  constexpr std::uint64_t count_placed(std::uint32_t stride) const {
    std::uint64_t placed = 0;
    for (std::size_t i = 0; i < space_.persistences; i += stride) {
      placed += values(space_.buffer_axis(space_.placements[i]), stride).size();
    }
    return placed;
  }

  constexpr void enumerate() {
    while (count_candidates(stride_) > limits_.candidates) {
      ++stride_;
    }
    std::vector<std::size_t> assignments{};
    for (std::uint32_t const s : values(space_.swap_axis, stride_)) {
      for (std::uint32_t const c : values(space_.checkpoint_axis(s), stride_)) {
        insert_sorted(assignments, space_.assignment(s, c));
      }
    }
    add_candidates(assignments);
  }
  constexpr void add_candidates(std::vector<std::size_t> const& assignments) {
    axis const all{0, space_.persistences - 1};
    for (std::uint32_t const p : values(all, stride_)) {
      for (std::uint32_t const b : values(space_.buffer_axis(space_.placements[p]), stride_)) {
        for (std::size_t const a : assignments) {
          candidates_.push_back(bounded(p, a, b));
        }
      }
    }
  }

  /// All divisions of the blocks among levels if they are few (true then). Else those of two kinds,
  /// beside as many swapped blocks as the best plan has, or none.
  constexpr bool enumerate_levels() {
    stride_ = 1;
    std::uint64_t every = 0;
    for (std::uint32_t const s : values(space_.swap_axis, 1)) {
      every += count_all(kinds_beside(space_, s), limits_.candidates);
    }
    bool const all = checked_mul(std::min<std::uint64_t>(every, limits_.candidates),
                                 count_placed(1)) <= limits_.candidates;
    std::vector<std::uint32_t> swaps = values(space_.swap_axis, 1);
    if (!all) {
      std::uint32_t const like = best_ == none ? space_.swap_axis.high : counts_of_best().swap;
      swaps = {space_.swap_axis.low};
      if (like > swaps.front()) {
        swaps.push_back(like);
      }
      while (checked_mul(count_mixed(swaps), count_placed(stride_)) > limits_.candidates) {
        ++stride_;
      }
    }
    std::vector<std::size_t> assignments{};
    for (std::uint32_t const s : swaps) {
      kind_axes const a = kinds_beside(space_, s);
      for (kind_counts const& n : all ? all_counts(a) : mixed_counts(a, stride_)) {
        insert_sorted(assignments, space_.assignment(counts_of(n, space_.depth, s)));
      }
    }
    candidates_before_ = candidates_.size();
    add_candidates(assignments);
    return all;
  }
  constexpr std::uint64_t count_mixed(std::vector<std::uint32_t> const& swaps) const {
    std::uint64_t out = 0;
    for (std::uint32_t const s : swaps) {
      out += mixed_counts(kinds_beside(space_, s), stride_).size();
    }
    return out;
  }
  constexpr activation::counts const& counts_of_best() const {
    return space_.counts[programs_.results()[best_].what.assignment];
  }

  /// True when a candidate can't become the answer: too large, or no better than the incumbent.
  constexpr bool hopeless(candidate const& c) const {
    cost::live_bytes const least = programs_.least_memory(c.placement, c.assignment, c.buffers);
    if (least.device > order_.allowed.device || least.host > order_.allowed.host) {
      return true;
    }
    return best_ != none && no_better(c, least);
  }
  constexpr bool no_better(candidate const& c, cost::live_bytes const& least) const {
    scored const& best = programs_.results()[best_];
    return c.bound > best.time || (c.bound == best.time && least.device > best.device);
  }

  /// Compiles candidates in the order of their bounds until none can be better, or a limit is
  /// met. True when the answer is proven.
  constexpr bool descend() {
    std::vector<std::size_t> order{};
    for (std::size_t i = candidates_before_; i < candidates_.size(); ++i) {
      if (!hopeless(candidates_[i])) {
        order.push_back(i);
      }
    }
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      candidate const& x = candidates_[a];
      candidate const& y = candidates_[b];
      return std::tuple(x.bound, x.least.device, order_.key(x)) <
             std::tuple(y.bound, y.least.device, order_.key(y));
    });
    std::size_t const most = programs_.results().size() + limits_.programs;
    for (std::size_t const i : order) {
      candidate const& c = candidates_[i];
      if (best_ != none && c.bound > programs_.results()[best_].time) {
        break;
      }
      if (hopeless(c)) {
        continue;
      }
      if (programs_.results().size() >= most) {
        open_ = levels_ ? std::min(open_, c.bound) : c.bound;
        return false;
      }
      evaluate(c);
    }
    picoseconds const least = best_ == none ? picoseconds{} : programs_.results()[best_].time;
    open_ = levels_ ? std::min(open_, least) : least;
    return stride_ == 1;
  }

  constexpr bool split_updates(bool proven) {
    return space_.splits() ? split_search<searcher>(*this).run(proven) : proven;
  }

  // --- when nothing has been found to fit

  constexpr std::uint64_t lack(std::uint64_t device, std::uint64_t host) const {
    std::uint64_t const d = device > order_.allowed.device ? device - order_.allowed.device : 0;
    std::uint64_t const h = host > order_.allowed.host ? host - order_.allowed.host : 0;
    return checked_add(d, h);
  }
  constexpr auto need(std::uint64_t device, std::uint64_t host) const {
    return std::tuple(lack(device, host), device, host);
  }

  /// Compiles the smallest candidates until one fits, or none of the rest can lack less than the
  /// best so far.
  constexpr void find_least() {
    std::sort(
        candidates_.begin(), candidates_.end(), [this](candidate const& a, candidate const& b) {
          return std::tuple(need(a.least.device, a.least.host), order_.key(a)) <
                 std::tuple(need(b.least.device, b.least.host), order_.key(b));
        });
    for (std::size_t i = 0; i < programs_.results().size(); ++i) {
      note_least(i);
    }
    std::size_t const most = programs_.results().size() + limits_.refinements;
    for (candidate const& c : candidates_) {
      cost::live_bytes const least = programs_.least_memory(c.placement, c.assignment, c.buffers);
      scored const& best = programs_.results()[least_];
      if (best_ != none || programs_.results().size() >= most ||
          lack(c.least.device, c.least.host) > lack(best.device, best.host)) {
        return;
      }
      if (need(least.device, least.host) < need(best.device, best.host)) {
        note_least(evaluate(c));
      }
    }
  }
  constexpr void note_least(std::size_t at) {
    scored const& s = programs_.results()[at];
    if (least_ == none || need(s.device, s.host) < need(programs_.results()[least_].device,
                                                        programs_.results()[least_].host)) {
      least_ = at;
    }
  }

  space_of<Policies>& space_;
  hw::machine const& machine_;
  budget const& budget_;
  ranking<Policies> order_;
  limits limits_;
  evaluator<Policies> programs_;
  std::vector<candidate> candidates_{};
  std::vector<named_result> fixed_{};  ///< fixed policies
  std::size_t best_ = none;            ///< among the results: the answer so far
  std::size_t least_ = none;           ///< the one that lacks least memory
  std::uint32_t stride_ = 1;           ///< of the enumerated axes
  bool levels_ = false;                ///< whether save levels are searched too
  std::size_t candidates_before_ = 0;  ///< settled before they were
  picoseconds open_{};                 ///< least bound that was not compiled
};

}  // namespace protrain::inline v0::plan::detail
