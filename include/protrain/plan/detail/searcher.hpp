// SPDX-License-Identifier: Apache-2.0
#pragma once
// The search itself: candidates in the order of their bounds, an incumbent, and a cap.

#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/changes.hpp"
#include "protrain/plan/detail/evaluator.hpp"
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
        allowed_(allowance_of(b, all.facts, m)),
        limits_(most),
        programs_(all, m) {}

  constexpr result<plan, infeasible> run() {
    try_fixed();
    enumerate();
    bool proven = descend();
    if (best_ == none) {
      proven = split_updates(proven);  // some need less host memory
    }
    if (best_ == none) {
      find_least();
    }
    if (best_ == none) {
      return shortage();
    }
    if (!proven) {
      local_search<searcher>(*this).run(limits_.refinements);
    }
    std::size_t const unsplit = best_;
    proven = split_updates(proven);
    if (!proven && best_ != unsplit) {
      local_search<searcher>(*this).run(limits_.splits);
    }
    return answer(proven);
  }

 private:
  template <class>
  friend class local_search;
  template <class>
  friend class split_search;
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  // --- candidates

  constexpr bool fits(scored const& s) const {
    return s.device <= allowed_.device && s.host <= allowed_.host;
  }

  /// Compiles a candidate unless that was done before; returns its position in the results.
  constexpr std::size_t evaluate(candidate const& c) {
    std::size_t const at = programs_.evaluate(c);
    scored const& s = programs_.results()[at];
    if (fits(s) && (best_ == none || before(s, programs_.results()[best_]))) {
      best_ = at;
    }
    return at;
  }

  /// The order of answers: time, device memory, then the numbers.
  constexpr bool before(scored const& a, scored const& b) const {
    if (a.time != b.time) {
      return a.time < b.time;
    }
    if (a.device != b.device) {
      return a.device < b.device;
    }
    return key(a.what) < key(b.what);
  }
  constexpr std::array<std::uint32_t, 5> key(candidate const& c) const {
    activation::counts const& n = space_.counts[c.assignment];
    placement_numbers const& p = space_.placed_as[c.placement];
    return {p.persist, c.buffers, n.swap, n.checkpoint, p.streamed};
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

  // --- best first

  constexpr std::uint64_t count_candidates(std::uint32_t stride) const {
    std::uint64_t pairs = 0;
    for (std::uint32_t const s : values(space_.swap_axis, stride)) {
      pairs += values(space_.checkpoint_axis(s), stride).size();
    }
    std::uint64_t placed = 0;
    for (std::size_t i = 0; i < space_.persistences; i += stride) {
      placed += values(space_.buffer_axis(space_.placements[i]), stride).size();
    }
    return checked_mul(pairs, placed);
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
    axis const all{0, space_.persistences - 1};
    for (std::uint32_t const p : values(all, stride_)) {
      for (std::uint32_t const b : values(space_.buffer_axis(space_.placements[p]), stride_)) {
        for (std::size_t const a : assignments) {
          candidates_.push_back(bounded(p, a, b));
        }
      }
    }
  }

  /// True when a candidate can't become the answer: too large, or no better than the incumbent.
  constexpr bool hopeless(candidate const& c) const {
    cost::live_bytes const least = programs_.least_memory(c.placement, c.assignment, c.buffers);
    if (least.device > allowed_.device || least.host > allowed_.host) {
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
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (!hopeless(candidates_[i])) {
        order.push_back(i);
      }
    }
    std::sort(order.begin(), order.end(), [this](std::size_t a, std::size_t b) {
      candidate const& x = candidates_[a];
      candidate const& y = candidates_[b];
      return std::tuple(x.bound, x.least.device, key(x)) <
             std::tuple(y.bound, y.least.device, key(y));
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
        open_ = c.bound;
        return false;
      }
      evaluate(c);
    }
    open_ = best_ == none ? picoseconds{} : programs_.results()[best_].time;
    return stride_ == 1;
  }

  constexpr bool split_updates(bool proven) {
    return space_.splits() ? split_search<searcher>(*this).run(proven) : proven;
  }

  // --- when nothing has been found to fit

  constexpr std::uint64_t lack(std::uint64_t device, std::uint64_t host) const {
    std::uint64_t const d = device > allowed_.device ? device - allowed_.device : 0;
    std::uint64_t const h = host > allowed_.host ? host - allowed_.host : 0;
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
          return std::tuple(need(a.least.device, a.least.host), key(a)) <
                 std::tuple(need(b.least.device, b.least.host), key(b));
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

  constexpr infeasible shortage() const {
    scored const& s = programs_.results()[least_];
    std::uint64_t const local = std::max<std::uint64_t>(
        1, std::min<std::uint64_t>(space_.facts.job.world, machine_.devices));
    infeasible out{.needs_device = s.device + budget_.reserve.value + space_.facts.outside.value,
                   .needs_host = s.host * local};
    out.short_device =
        out.needs_device > budget_.gpu.value ? out.needs_device - budget_.gpu.value : 0;
    out.short_host = out.needs_host > budget_.host.value ? out.needs_host - budget_.host.value : 0;
    out.code = out.short_device > 0 ? errc::no_device_memory : errc::no_host_memory;
    out.reason =
        out.short_device > 0 ? "no plan fits the GPU budget" : "no plan fits the host budget";
    out.number = out.short_device > 0 ? out.short_device : out.short_host;
    out.nearest = numbers_of(s.what);
    return out;
  }

  // --- the answer

  constexpr numbers numbers_of(candidate const& c) const {
    return space_.numbers_of(c.placement, c.assignment, c.buffers);
  }

  constexpr alternative alternative_of(std::string_view name, scored const& s) const {
    return {.name = text(name),
            .at = numbers_of(s.what),
            .iteration = s.time,
            .device_peak = s.device,
            .host_peak = s.host};
  }

  /// Fixed policies that fit, then the three best others.
  constexpr std::vector<alternative> runner_ups() const {
    std::vector<alternative> out{};
    std::vector<std::size_t> listed{best_};
    for (auto const& [name, at] : fixed_) {
      bool const seen = std::find(listed.begin(), listed.end(), at) != listed.end();
      if (!seen && fits(programs_.results()[at])) {
        out.push_back(alternative_of(name, programs_.results()[at]));
        listed.push_back(at);
      }
    }
    for (int n = 0; n < 3; ++n) {
      std::size_t next = none;
      for (std::size_t i = 0; i < programs_.results().size(); ++i) {
        scored const& s = programs_.results()[i];
        bool const seen = std::ranges::find(listed, i) != listed.end();
        if (!seen && fits(s) && (next == none || before(s, programs_.results()[next]))) {
          next = i;
        }
      }
      if (next != none) {
        out.push_back(alternative_of("", programs_.results()[next]));
        listed.push_back(next);
      }
    }
    return out;
  }

  constexpr result<plan, infeasible> answer(bool proven) const {
    scored const& s = programs_.results()[best_];
    auto predicted = programs_.predict(s.what, allowed_);
    if (!predicted) {
      error const& wrong = predicted.failure();
      return infeasible{.code = wrong.code, .reason = wrong.what, .number = wrong.number};
    }
    plan out{.trace = space_.facts,
             .layout = space_.layout,
             .knobs = space_.knobs_of(s.what.placement, s.what.assignment, s.what.buffers),
             .at = numbers_of(s.what),
             .sizing = space_.wanted.chunk ? "given" : "policy",
             .predicted = *std::move(predicted),
             .runner_up = runner_ups()};
    out.search = {.candidates = static_cast<std::uint32_t>(candidates_.size()),
                  .compiled = static_cast<std::uint32_t>(programs_.results().size()),
                  .proven = proven,
                  .bound = std::min(open_, s.time)};
    out.changed = changes(space_.wanted, out.at);
    return out;
  }

  struct named_result {
    std::string_view name;
    std::size_t at = 0;
  };

  space_of<Policies>& space_;
  hw::machine const& machine_;
  budget const& budget_;
  allowance allowed_;
  limits limits_;
  evaluator<Policies> programs_;
  std::vector<candidate> candidates_{};
  std::vector<named_result> fixed_{};
  std::size_t best_ = none;   ///< among the results: the answer so far
  std::size_t least_ = none;  ///< the one that lacks least memory
  std::uint32_t stride_ = 1;  ///< of the enumerated axes
  picoseconds open_{};        ///< least bound that was not compiled
};

}  // namespace protrain::inline v0::plan::detail
