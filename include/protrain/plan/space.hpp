// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plans that a search chooses from: every combination of persistence, buffers, swapping and
// checkpointing that a request leaves open, with what the bounds need of each.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/result.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/benefit.hpp"
#include "protrain/cost/make_placed.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/detail/check_request.hpp"
#include "protrain/plan/detail/ranges.hpp"  // IWYU pragma: export
#include "protrain/plan/detail/sites.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// Slots for parts of streamed chunks, and for gradients: what a search tries, and where it doesn't
/// (`space_of::thin`) the former.
inline constexpr std::uint32_t default_streaming_slots = 2;
inline constexpr std::uint32_t default_gradient_slots = 2;
inline constexpr std::uint32_t most_gradient_slots = 3;

/// Programs of more micro-batches than this would be longer than planning needs them to be.
inline constexpr std::uint64_t most_unroll = 1U << 16U;

/// The open knobs of one job under one bundle. Filled once, then only read, apart from
/// assignments that are looked up on demand.
template <class Policies>
class space_of {
 public:
  trace::trace const& facts;
  Policies const& rules;
  cost::rates rates{};
  chunk::layout layout{};
  cost::step step{};
  std::vector<chunk::benefit> benefits{};  ///< by chunk
  numbers common{};                        ///< interval, chunk, time, unroll: the same for all
  std::vector<trace::pin> pins{};
  std::vector<std::uint8_t> depths{};  ///< by block: save levels
  std::uint32_t depth = 0;  ///< the most that a free block has, if the policy places them
  std::vector<std::vector<std::uint8_t>> persistences{};  ///< by chunk, of each number, ascending
  std::vector<cost::placed> placements{};                 ///< in order of first use
  std::vector<placement_numbers> placed_as{};             ///< of each placement
  std::vector<cost::assigned> assignments{};              ///< in order of first use
  std::vector<activation::counts> counts{};               ///< of each assignment
  std::vector<std::uint32_t> gradient_slots{};            ///< likewise
  axis persist_axis{};
  axis swap_axis{};
  axis gradient_slot_axis{};
  axis streaming_slot_axis{};  ///< where a chunk is streamed
  bool unsplit = false;        ///< for now, no update is streamed
  request wanted{};

  constexpr space_of(trace::trace const& t, hw::machine const& m, Policies const& p)
      : facts(t),
        rules(p),
        rates(cost::rates_of(m, p.bandwidth, t.job.world)),
        pins(activation::pins_of(t)),
        depths(activation::depths_of(t)) {
    for (std::size_t b = 0; places_levels && b < pins.size(); ++b) {
      depth = pins[b] == trace::pin::free ? std::max<std::uint32_t>(depth, depths[b]) : depth;
    }
  }

  /// Fixes what `r` fixes, clamped to what the job has.
  constexpr error open(request const& r) {
    error const wrong =
        detail::check_request<decltype(rules.format)>(r, facts, depths, places_levels);
    if (wrong.code != errc::none) {
      return wrong;
    }
    wanted = r;
    if (!wanted.streamed && wanted.streaming_slots == 0U) {
      wanted.streamed = 0;  // no slot, nothing to stream
    }
    auto const bytes = update::bytes_of(facts.job);
    choose_layout(bytes->value);
    common.time =
        r.defer.value_or(0) > 0 ? update::timing::before_next_use : rules.timing.choose(facts.job);
    common.time = r.time.value_or(common.time);
    common.unroll = detail::clamp(r.unroll.value_or(schedule::default_unroll), 1, most_unroll);
    auto const made = cost::make_step(facts, layout, common.time, rates, common.unroll);
    if (!made) {
      return made.failure();
    }
    step = *made;
    benefits = cost::benefits_of(step);
    choose_axes();
    return choose_persistences();
  }

  /// Slots are no longer searched.
  constexpr void thin() {
    auto const at = [](axis& a, std::uint32_t n) {
      n = detail::clamp(n, a.low, a.high);
      a = {n, n};
    };
    at(gradient_slot_axis, default_gradient_slots);
    at(streaming_slot_axis, default_streaming_slots);
  }

  /// Blocks that a swapped one comes back ahead of its own.
  constexpr std::uint32_t ahead() const { return detail::swap_ahead(common.interval); }
  /// What the placement policy makes of a number.
  constexpr std::vector<std::uint8_t> chosen_persistent(std::uint32_t n) const {
    std::vector<std::uint8_t> out =
        chunk::persistent_of(rules.placement, layout, std::span(benefits), n);
    PROTRAIN_EXPECT(out.size() == layout.chunks.size(), "placement law: one flag per chunk");
    return out;
  }

  constexpr std::uint32_t free_blocks() const { return activation::free_blocks(pins); }

  /// Free blocks that the assignment policy may leave to checkpointing beside `swap` swapped ones.
  constexpr axis checkpoint_axis(std::uint32_t swap) const {
    std::uint32_t const most = free_blocks() - std::min(free_blocks(), swap);
    if (wanted.checkpoint) {
      std::uint32_t const n = detail::clamp(*wanted.checkpoint, 0, most);
      return {n, n};
    }
    return {0, most};
  }
  /// Blocks that may hold save level `level`, from 1.
  constexpr axis level_axis(std::uint32_t level) const {
    std::uint32_t most = 0;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      most += pins[b] == trace::pin::free && depths[b] >= level ? 1U : 0U;
    }
    if (wanted.levels) {
      std::uint32_t const n = detail::clamp((*wanted.levels)[level - 1], 0, most);
      return {n, n};
    }
    return {0, most};
  }
  /// The levels that are wanted, or none.
  constexpr std::array<std::uint32_t, trace::most_levels> first_levels() const {
    std::array<std::uint32_t, trace::most_levels> out{};
    for (std::uint32_t k = 1; k <= depth; ++k) {
      out[k - 1] = level_axis(k).low;
    }
    return out;
  }
  constexpr axis buffer_axis(cost::placed const& p) const {
    std::uint32_t const most = std::max(p.fewest_buffers, p.most_buffers);
    if (wanted.buffer) {
      std::uint32_t const n = detail::clamp(*wanted.buffer, p.fewest_buffers, most);
      return {n, n};
    }
    return {p.fewest_buffers, most};
  }

  /// Position in `assignments` of what the policy makes of the counts. Different counts with one
  /// result share a position.
  constexpr std::size_t assignment(std::uint32_t swap,
                                   std::uint32_t checkpoint,
                                   std::uint32_t slots) {
    return assignment({.swap = swap, .checkpoint = checkpoint, .levels = first_levels()}, slots);
  }
  constexpr std::size_t assignment(activation::counts c, std::uint32_t slots) {
    c.interval = common.interval;
    if (auto const at = find_assignment(c, slots); at < assignments.size()) {
      return at;
    }
    activation::assignment made = activation::assign(rules.assignment, pins, depths, c);
    activation::counts const real = counted(made);
    auto const known = find_assignment(real, slots);
    if (known < assignments.size() && assignments[known].strategies == made.strategies &&
        assignments[known].levels == made.levels) {
      return known;
    }
    assignments.push_back(cost::make_assigned(
        facts, step, rates, std::move(made.strategies), slots, ahead(), std::move(made.levels)));
    counts.push_back(real);
    gradient_slots.push_back(slots);
    index_assignment();
    return assignments.size() - 1;
  }

  /// What is known of a persistence before its other knobs are.
  constexpr cost::placed persistent_only(std::size_t base) const {
    return cost::make_placed(
        facts, layout, step, persistences[base], {}, {}, cost::decided::persistence);
  }
  /// And before it is known which updates are deferred.
  constexpr cost::placed undeferred(std::size_t base, std::uint32_t streamed) const {
    return cost::make_placed(facts,
                             layout,
                             step,
                             persistences[base],
                             {},
                             streamed_flags(base, streamed),
                             cost::decided::sites);
  }

  /// How many updates may be streamed beside a persistence.
  constexpr axis streamed_axis(std::size_t base) const {
    std::uint32_t const moving = detail::moving_chunks(step, persistences[base]);
    std::uint32_t const most = unsplit ? 0 : rules.site.most_streamed(moving);
    PROTRAIN_EXPECT(most <= moving, "site law: more streamed chunks than move");
    if (wanted.streamed) {
      std::uint32_t const n = detail::clamp(*wanted.streamed, 0, most);
      return {n, n};
    }
    return {0, most};
  }
  /// How many may be deferred. The plans with names leave that to a rule.
  constexpr axis defer_axis(std::size_t base, std::uint32_t streamed) const {
    std::uint32_t const moving = detail::moving_chunks(step, persistences[base]);
    if (wanted.defer) {
      std::uint32_t const n = detail::clamp(*wanted.defer, 0, moving);
      return step.defers ? axis{n, n} : axis{};
    }
    if (wanted.named && step.defers) {
      std::uint32_t const n = rule_defer(base, streamed);
      return {n, n};
    }
    return {0, step.defers ? moving : 0};
  }

  /// Position in `placements` of the persistence `base` with so many streamed updates and, unless a
  /// rule is to say how many, so many deferred ones.
  constexpr std::size_t placement(std::size_t base,
                                  std::uint32_t streamed,
                                  std::optional<std::uint32_t> defer = {}) {
    std::uint32_t const n = defer ? *defer : defer_by_rule(base, streamed);
    for (std::size_t i = 0; i < placed_as.size(); ++i) {
      placement_numbers const& has = placed_as[i];
      if (has.base == base && has.streamed == streamed && has.defer == n) {
        return i;
      }
    }
    return add_placement(base, streamed, n);
  }
  /// The same, of what is not there yet.
  constexpr std::size_t add_placement(std::size_t base,
                                      std::uint32_t streamed,
                                      std::uint32_t defer) {
    placements.push_back(cost::make_placed(
        facts, layout, step, persistences[base], defer, streamed_flags(base, streamed)));
    placed_as.push_back({.base = static_cast<std::uint32_t>(base),
                         .persist = persist_axis.low + static_cast<std::uint32_t>(base),
                         .moving = detail::moving_chunks(step, persistences[base]),
                         .streamed = streamed,
                         .defer = placements.back().defer});
    return placements.size() - 1;
  }

 private:
  static constexpr bool places_levels =
      activation::level_policy<std::remove_cvref_t<decltype(std::declval<Policies>().assignment)>>;

  constexpr void choose_layout(std::uint64_t value_bytes) {
    std::uint64_t capacity = rules.sizing.capacities(facts).front();
    if (wanted.chunk) {
      std::uint64_t most = capacity;  // no less than one chunk for everything
      for (model::parameter const& p : facts.parameters) {
        std::uint64_t const guard = facts.job.debug ? element_granule : 0;
        most = checked_add(most, round_up(elements(p), element_granule) + guard);
      }
      capacity = std::clamp<std::uint64_t>(*wanted.chunk / value_bytes, 1, most);
    }
    layout = chunk::make_layout(facts, capacity);
    common.chunk = checked_mul(layout.capacity, value_bytes);
  }

  constexpr void choose_axes() {
    std::uint32_t const blocks = std::max<std::uint32_t>(1, free_blocks());
    common.interval = wanted.interval ? detail::clamp(*wanted.interval, 1, blocks)
                                      : detail::swap_interval(facts, rates, blocks);
    std::uint64_t const slots =
        std::max<std::uint64_t>(2, checked_mul(step.spans.size(), step.in_program));
    std::uint32_t const most_slots =
        detail::clamp(slots, 2, std::numeric_limits<std::uint32_t>::max());
    gradient_slot_axis = {2, std::min(most_slots, most_gradient_slots)};
    if (wanted.gradient_slots || wanted.named) {
      std::uint32_t const n =
          detail::clamp(wanted.gradient_slots.value_or(default_gradient_slots), 2, most_slots);
      gradient_slot_axis = {n, n};
    }
    auto const chunks = static_cast<std::uint32_t>(layout.chunks.size());
    std::uint32_t const most_parts = std::max(1U, chunks) * schedule::default_stream_parts;
    streaming_slot_axis = {1, std::min(default_streaming_slots, most_parts)};
    if (wanted.streaming_slots) {
      std::uint32_t const n = detail::clamp(*wanted.streaming_slots, 1, most_parts);
      streaming_slot_axis = {n, n};
    }
    activation::counts const all{.swap = free_blocks(), .interval = common.interval};
    std::uint32_t const most_swap =
        counted(activation::assign(rules.assignment, pins, depths, all)).swap;
    swap_axis = {0, most_swap};
    if (wanted.swap) {
      std::uint32_t const n = detail::clamp(*wanted.swap, 0, most_swap);
      swap_axis = {n, n};
    }
    persist_axis = {0, chunks};
    if (wanted.persist) {
      std::uint32_t const n = detail::clamp(*wanted.persist, 0, chunks);
      persist_axis = {n, n};
    }
  }

  constexpr error choose_persistences() {
    if (!wanted.listed) {
      for (std::uint32_t n = persist_axis.low; n <= persist_axis.high; ++n) {
        persistences.push_back(chosen_persistent(n));
      }
      return {};
    }
    std::vector<std::uint8_t> flags(layout.chunks.size(), 0);
    for (std::uint32_t const c : wanted.persist_set) {
      if (c >= flags.size()) {
        return {errc::out_of_range, "persist names a chunk that the layout doesn't have", c};
      }
      flags[c] = 1;
    }
    auto const n = static_cast<std::uint32_t>(wanted.persist_set.size());
    persist_axis = {n, n};
    persistences.push_back(std::move(flags));
    return {};
  }

  constexpr std::vector<std::uint8_t> streamed_flags(std::size_t base,
                                                     std::uint32_t streamed) const {
    return detail::streamed_flags(rules.site, step, persistences[base], streamed);
  }
  constexpr std::uint32_t defer_by_rule(std::size_t base, std::uint32_t streamed) const {
    axis const open = defer_axis(base, streamed);
    return open.low == open.high ? open.low : rule_defer(base, streamed);
  }
  constexpr std::uint32_t rule_defer(std::size_t base, std::uint32_t streamed) const {
    return cost::deferred_by_rule(facts, step, persistences[base], streamed_flags(base, streamed));
  }

  /// Assignments in the order of their counts, so that one of thousands is found quickly.
  constexpr auto order_of(activation::counts const& c, std::uint32_t slots) const {
    return std::tuple(c.swap, c.checkpoint, c.levels, slots);
  }
  constexpr std::size_t place_of(activation::counts const& c, std::uint32_t slots) const {
    auto const at =
        std::ranges::lower_bound(sorted_, order_of(c, slots), {}, [this](std::size_t i) {
          return order_of(counts[i], gradient_slots[i]);
        });
    return static_cast<std::size_t>(at - sorted_.begin());
  }
  constexpr std::size_t find_assignment(activation::counts const& c, std::uint32_t slots) const {
    std::size_t const at = place_of(c, slots);
    bool const found =
        at < sorted_.size() && counts[sorted_[at]] == c && gradient_slots[sorted_[at]] == slots;
    return found ? sorted_[at] : assignments.size();
  }
  constexpr void index_assignment() {
    std::size_t const at = place_of(counts.back(), gradient_slots.back());
    sorted_.insert(sorted_.begin() + static_cast<std::ptrdiff_t>(at), assignments.size() - 1);
  }

  constexpr activation::counts counted(activation::assignment const& made) const {
    activation::counts out{.interval = common.interval};
    for (std::size_t b = 0; b < pins.size(); ++b) {
      bool const free = pins[b] == trace::pin::free;
      out.swap += free && made.strategies[b] == activation::strategy::swap ? 1U : 0U;
      out.checkpoint += free && made.strategies[b] == activation::strategy::checkpoint ? 1U : 0U;
      std::uint8_t const level = made.levels.empty() ? std::uint8_t{0} : made.levels[b];
      if (level > 0) {
        ++out.levels[level - 1U];
      }
    }
    return out;
  }

  std::vector<std::size_t> sorted_{};  ///< assignments
};

}  // namespace protrain::inline v0::plan
