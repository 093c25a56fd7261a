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
#include "protrain/plan/detail/assignment_groups.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/detail/frontier.hpp"
#include "protrain/plan/detail/least_search.hpp"
#include "protrain/plan/detail/level_axes.hpp"
#include "protrain/plan/detail/local_search.hpp"
#include "protrain/plan/detail/scout.hpp"
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
#include <optional>
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
        programs_(all, m),
        groups_(all) {}

  constexpr result<plan, infeasible> run() {
    try_fixed();
    bool proven = search_sites(false);
    if (space_.depth > 0 && !space_.wanted.levels) {
      try_uniform_levels();
      proven = then(proven, true);
    }
    give_back_slots();
    answers<Policies> const out{space_, machine_, budget_, order_, programs_, fixed_};
    if (best_ == none) {
      return out.shortage(programs_.results()[least_]);
    }
    return out.answer(best_,
                      {.candidates = static_cast<std::uint32_t>(bounds_),
                       .compiled = static_cast<std::uint32_t>(programs_.results().size()),
                       .proven = proven,
                       .bound = std::min(open_, best().time)});
  }

 private:
  template <class>
  friend class local_search;
  template <class>
  friend class least_search;
  template <class, class>
  friend class scout;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  // --- candidates

  constexpr scored const& best() const { return programs_.results()[best_]; }

  /// Compiles a candidate unless that was done before; returns its position in the results.
  constexpr std::size_t evaluate(candidate const& c) {
    std::size_t const at = programs_.evaluate(c);
    scored const& s = programs_.results()[at];
    if (order_.fits(s) && (best_ == none || order_.before(s, best()))) {
      best_ = at;
    }
    return at;
  }

  constexpr candidate bounded(std::size_t placement,
                              std::size_t assignment,
                              std::uint32_t buffers,
                              std::uint32_t slots) {
    candidate out{.placement = static_cast<std::uint32_t>(placement),
                  .assignment = static_cast<std::uint32_t>(assignment),
                  .buffers = buffers,
                  .slots = space_.placed_as[placement].streamed > 0 ? slots : 0};
    cost::placed const& p = space_.placements[placement];
    out.bound = cost::lower_bound(space_.step, p, space_.assignments[assignment], buffers);
    left_ -= std::min<std::uint64_t>(left_, 1);
    programs_.take_placements();
    out.least = programs_.least_memory(out);
    return out;
  }

  /// Slots that take memory and save no time.
  constexpr void give_back_slots() {
    if (best_ == none || best().what.slots < 2 || space_.wanted.streaming_slots) {
      return;
    }
    candidate fewer = best().what;
    fewer.slots = 1;
    evaluate(fewer);
  }

  // --- fixed policies

  /// A fixed policy, where the request leaves it to the search.
  constexpr candidate fixed_candidate(request const& r) {
    auto const within = [](std::uint64_t wanted, axis const& a) {
      return clamp(wanted, a.low, a.high);
    };
    std::uint32_t const persist = within(*r.persist, space_.persist_axis);
    std::size_t const base = persist - space_.persist_axis.low;
    std::size_t const placement = space_.placement(base, space_.streamed_axis(base).low);
    std::uint32_t const swap = within(*r.swap, space_.swap_axis);
    std::uint32_t const checkpoint = within(*r.checkpoint, space_.checkpoint_axis(swap));
    std::uint32_t const buffers =
        within(*r.buffer, space_.buffer_axis(space_.placements[placement]));
    axis const& slots = space_.gradient_slot_axis;
    std::size_t const assignment =
        space_.assignment(swap, checkpoint, within(default_gradient_slots, slots));
    return bounded(placement, assignment, buffers, space_.streaming_slot_axis.high);
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
        std::size_t const a = space_.assignment(c, space_.gradient_slots[like.assignment]);
        evaluate(bounded(like.placement, a, like.buffers, like.slots));
      }
    }
  }

  // --- best first

  /// Without streamed updates, then with them if there may be any: with them nothing is slower.
  constexpr bool search_sites(bool levels) {
    bool split = false;
    for (std::size_t base = 0; base < space_.persistences.size(); ++base) {
      axis const streamed = space_.streamed_axis(base);
      split = split || streamed.low < streamed.high;
    }
    space_.unsplit = split;
    bool const proven = search(levels);
    space_.unsplit = false;
    return split ? then(proven, levels) : proven;
  }
  /// Another search, of more. Where it leaves out what the one before looked at, both have to prove.
  constexpr bool then(bool proven, bool levels) {
    axis const before = space_.gradient_slot_axis;
    bool const now = search(levels);
    return now && (proven || space_.gradient_slot_axis == before);
  }

  /// With save levels or, where they are open too, without: then first, so that with them nothing is
  /// slower. Each search has all that the limits allow. True when no plan is better.
  constexpr bool search(bool levels) {
    levels_ = levels;
    bool const all = list_assignments();
    left_ = limits_.candidates;
    bounds_ += left_;
    instructions_ = programs_.instructions() + limits_.instructions;
    bool const whole = descend() && all;
    if (best_ == none) {
      least_ = least_search<searcher>(*this).run();
    }
    if (!whole && best_ != none) {
      climb(best_, limits_.refinements);
    }
    bounds_ -= left_;
    return whole;
  }

  /// Everything that may be done with the blocks. False where some of it was left out.
  constexpr bool list_assignments() {
    std::vector<activation::counts> wanted{};
    bool const all = list_counts(wanted);
    std::uint64_t const slots = space_.gradient_slot_axis.high - space_.gradient_slot_axis.low + 1;
    std::uint64_t const every = checked_mul(wanted.size(), slots);
    if (count_placed(every) > limits_.candidates) {
      space_.thin();
    }
    std::vector<std::size_t> out{};
    axis const g = space_.gradient_slot_axis;
    for (std::uint32_t n = g.low; n <= g.high; ++n) {
      for (activation::counts const& c : wanted) {
        insert_sorted(out, space_.assignment(c, n));
      }
    }
    groups_.gather(out);
    return all;
  }

  /// What may be done with blocks beside `swap` swapped ones.
  constexpr kind_axes kinds(std::uint32_t swap) const {
    kind_axes out = kinds_beside(space_, swap);
    if (!levels_ && !space_.wanted.levels) {
      for (std::size_t k = 1; k < out.kinds; ++k) {
        out.of[k] = axis{};
      }
    }
    return out;
  }

  /// All divisions of the blocks among checkpoints and levels, beside each number of swapped ones, if
  /// they are few (true then). Else those of two kinds.
  constexpr bool list_counts(std::vector<activation::counts>& out) const {
    std::vector<std::uint32_t> const swaps = values(space_.swap_axis, 1);
    std::uint64_t every = 0;
    for (std::uint32_t const s : swaps) {
      every += count_all(kinds(s), most_assignments);
    }
    bool const all = every <= most_assignments;
    std::uint32_t stride = 1;
    do {
      out.clear();
      for (std::uint32_t const s : values(space_.swap_axis, stride)) {
        kind_axes const a = kinds(s);
        for (kind_counts const& n : all ? all_counts(a) : mixed_counts(a, stride)) {
          out.push_back(counts_of(n, space_.depth, s));
        }
      }
      ++stride;
    } while (!all && out.size() > most_assignments);
    return all;
  }

  /// Candidates of the whole space with so many assignments, or more than are looked at.
  constexpr std::uint64_t count_placed(std::uint64_t assignments) const {
    std::uint64_t out = 0;
    for (std::size_t base = 0; base < space_.persistences.size(); ++base) {
      cost::placed const p = space_.persistent_only(base);
      axis const buffers = space_.buffer_axis(p);
      axis const streamed = space_.streamed_axis(base);
      axis const defer = space_.defer_axis(base, streamed.low);
      std::uint64_t const slots =
          space_.streaming_slot_axis.high - space_.streaming_slot_axis.low + 1;
      std::uint64_t const sites =
          (streamed.low == 0 ? 1 : slots) + checked_mul(streamed.high - streamed.low, slots);
      out += checked_mul(checked_mul(sites, std::uint64_t{defer.high - defer.low} + 1),
                         checked_mul(assignments, std::uint64_t{buffers.high - buffers.low} + 1));
      if (out > limits_.candidates) {
        return out;
      }
    }
    return out;
  }

  /// True when a candidate can't become the answer: too large, or no better than the incumbent.
  constexpr bool hopeless(candidate const& c) const {
    cost::live_bytes const least = programs_.least_memory(c);
    if (least.device > order_.allowed.device || least.host > order_.allowed.host) {
      return true;
    }
    return best_ != none && no_better(c, least);
  }
  constexpr bool no_better(candidate const& c, cost::live_bytes const& least) const {
    return c.bound > best().time || (c.bound == best().time && least.device > best().device);
  }

  constexpr void climb(std::size_t start, std::uint32_t programs) {
    local_search<searcher>(*this).run(start, programs);
  }
  /// While neither so many programs nor all instructions have been compiled, nor all bounds computed.
  constexpr bool may_compile(std::size_t programs) const {
    return programs_.results().size() < programs && programs_.instructions() < instructions_ &&
           left_ > 0;
  }

  /// Compiles candidates in the order of their bounds, a slice at a time, until none can be better
  /// or a limit is met. True when none is.
  constexpr bool descend() {
    frontier<Policies> open(space_, programs_, groups_, order_.allowed, left_);
    if (!finished(open.next())) {
      scout<searcher, frontier<Policies>>(*this, open).run();
    }
    std::size_t const programs = programs_.results().size() + limits_.programs;
    std::optional<picoseconds> done{};
    picoseconds const floor = open.next();
    picoseconds width = {std::max<std::uint64_t>(1, floor.value / slices)};
    bool whole = true;
    while (whole && open.next() < no_time_is_longer && !finished(open.next())) {
      picoseconds limit = open.next() + width;
      limit = best_ != none ? std::min(limit, best().time) : limit;
      auto const slice = open.slice(done, limit);
      whole = slice && compile(*slice, programs);
      done = whole ? limit : done;
      width = width * 2;
    }
    open_ = done.value_or(floor);
    if (whole) {
      open_ = best_ == none ? picoseconds{} : best().time;
    }
    return whole;
  }
  /// No candidate with such a bound, or a larger one, is better.
  constexpr bool finished(picoseconds bound) const { return best_ != none && bound > best().time; }

  /// In order; false when there were more than `most` programs.
  constexpr bool compile(std::vector<candidate> slice, std::size_t most) {
    sort(slice);
    for (candidate const& c : slice) {
      if (finished(c.bound)) {
        return true;
      }
      if (hopeless(c)) {
        continue;
      }
      if (!may_compile(most)) {
        return false;
      }
      evaluate(c);
    }
    return true;
  }

  constexpr void sort(std::vector<candidate>& list) const {
    std::sort(list.begin(), list.end(), [this](candidate const& a, candidate const& b) {
      return std::tuple(a.bound, a.least.device, order_.key(a)) <
             std::tuple(b.bound, b.least.device, order_.key(b));
    });
  }

  static constexpr std::uint64_t slices = 512;                  ///< of the least bound, at first
  static constexpr std::uint64_t most_assignments = 1U << 14U;  ///< beyond, they are thinned

  space_of<Policies>& space_;
  hw::machine const& machine_;
  budget const& budget_;
  ranking<Policies> order_;
  limits limits_;
  evaluator<Policies> programs_;
  assignment_groups<Policies> groups_;
  std::vector<named_result> fixed_{};  ///< fixed policies
  std::size_t best_ = none;            ///< among the results: the answer so far
  std::size_t least_ = none;           ///< the one that lacks least memory, while none fits
  std::uint64_t bounds_ = 0;           ///< computed in searches that have ended
  std::uint64_t left_ = 0;             ///< that this one may compute
  std::uint64_t instructions_ = 0;     ///< that it may compile up to
  bool levels_ = false;                ///< it looks at save levels too
  picoseconds open_{};                 ///< no candidate that was not compiled has a lower bound
};

}  // namespace protrain::inline v0::plan::detail
