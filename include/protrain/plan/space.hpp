// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plans that a search chooses from: every combination of persistence, buffers, swapping and
// checkpointing that a request leaves open, with what the bounds need of each.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/result.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/benefit.hpp"
#include "protrain/cost/lower_bound.hpp"
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
#include <type_traits>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// Slots for parts of streamed chunks where a request doesn't say.
inline constexpr std::uint32_t default_streaming_slots = 2;

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
  numbers common{};  ///< interval, chunk, slots, time, unroll: the same for all
  std::vector<trace::pin> pins{};
  std::vector<std::uint8_t> depths{};  ///< by block: save levels
  std::uint32_t depth = 0;  ///< the most that a free block has, if the policy places them
  std::vector<cost::placed> placements{};      ///< persistence, ascending; then more on demand
  std::vector<placement_numbers> placed_as{};  ///< of each placement
  std::uint32_t persistences = 0;              ///< placements that a space starts with
  std::vector<cost::assigned> assignments{};   ///< in order of first use
  std::vector<activation::counts> counts{};    ///< of each assignment
  axis persist_axis{};
  axis swap_axis{};
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
    return choose_placements();
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
  constexpr std::size_t assignment(std::uint32_t swap, std::uint32_t checkpoint) {
    return assignment({.swap = swap, .checkpoint = checkpoint, .levels = first_levels()});
  }
  constexpr std::size_t assignment(activation::counts c) {
    c.interval = common.interval;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == c) {
        return i;
      }
    }
    activation::assignment made = activation::assign(rules.assignment, pins, depths, c);
    activation::counts const real = counted(made);
    for (std::size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == real && assignments[i].strategies == made.strategies &&
          assignments[i].levels == made.levels) {
        return i;
      }
    }
    assignments.push_back(cost::make_assigned(facts,
                                              step,
                                              rates,
                                              std::move(made.strategies),
                                              common.gradient_slots,
                                              ahead(),
                                              std::move(made.levels)));
    counts.push_back(real);
    return assignments.size() - 1;
  }

  constexpr schedule::knobs knobs_of(std::size_t placement,
                                     std::size_t assignment,
                                     std::uint32_t buffers) const {
    schedule::knobs out{.persistent = placements[placement].persistent,
                        .strategies = assignments[assignment].strategies,
                        .levels = assignments[assignment].levels,
                        .buffers = buffers,
                        .swap_ahead = ahead(),
                        .gradient_slots = common.gradient_slots,
                        .time = common.time,
                        .defer = placements[placement].defer,
                        .unroll = common.unroll};
    if (placed_as[placement].streamed > 0) {
      out.streaming_slots = common.streaming_slots;
    }
    for (std::size_t c = 0; c < out.persistent.size(); ++c) {
      bool const streamed = placements[placement].streamed[c] != 0;
      update::site const away = streamed ? update::site::streamed : update::site::cpu;
      out.sites.push_back(out.persistent[c] != 0 ? update::site::gpu : away);
    }
    return out;
  }

  /// True when the search chooses which updates are streamed.
  constexpr bool splits() const { return !wanted.streamed; }
  /// The placement of the same persistence that the space started with.
  constexpr std::size_t base_of(std::size_t placement) const {
    return placed_as[placement].persist - placed_as.front().persist;
  }
  /// How many may be, beside the persistence of placement `base`.
  constexpr axis streamed_axis(std::size_t base) const {
    placement_numbers const& as = placed_as[base];
    return splits() ? axis{0, most_streamed(as.moving)} : axis{as.streamed, as.streamed};
  }
  /// Position in `placements` of the persistence of `base` with so many streamed updates.
  constexpr std::size_t placement(std::size_t base, std::uint32_t streamed) {
    placement_numbers wanted_as = placed_as[base];
    wanted_as.streamed = streamed;
    for (std::size_t i = 0; i < placed_as.size(); ++i) {
      if (placed_as[i] == wanted_as) {
        return i;
      }
    }
    placements.push_back(with_streamed(placements[base].persistent, streamed));
    placed_as.push_back(wanted_as);
    return placements.size() - 1;
  }
  /// The facts of such a placement.
  constexpr cost::placed with_streamed(std::vector<std::uint8_t> persistent,
                                       std::uint32_t streamed) const {
    cost::streaming how{.chunks = detail::streamed_flags(rules.site, step, persistent, streamed),
                        .slots = common.streaming_slots};
    return cost::make_placed(
        facts, layout, step, std::move(persistent), wanted_defer(), std::move(how));
  }

  constexpr numbers numbers_of(std::size_t placement,
                               std::size_t assignment,
                               std::uint32_t buffers) const {
    numbers out = common;
    out.persist = placed_as[placement].persist;
    out.moving = placed_as[placement].moving;
    out.streamed = placed_as[placement].streamed;
    out.streaming_slots = out.streamed > 0 ? common.streaming_slots : 0;
    out.buffer = buffers;
    out.defer = placements[placement].defer;
    out.swap = counts[assignment].swap;
    out.checkpoint = counts[assignment].checkpoint;
    out.levels = counts[assignment].levels;
    out.depth = depth;
    list_persistent(out, placements[placement].persistent);
    return out;
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
    common.gradient_slots = detail::clamp(wanted.gradient_slots.value_or(2), 2, most_slots);
    auto const chunks = static_cast<std::uint32_t>(layout.chunks.size());
    std::uint32_t const most_parts = std::max(1U, chunks) * schedule::default_stream_parts;
    common.streaming_slots =
        detail::clamp(wanted.streaming_slots.value_or(default_streaming_slots), 1, most_parts);
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

  constexpr error choose_placements() {
    if (wanted.listed) {
      std::vector<std::uint8_t> flags(layout.chunks.size(), 0);
      for (std::uint32_t const c : wanted.persist_set) {
        if (c >= flags.size()) {
          return {errc::out_of_range, "persist names a chunk that the layout doesn't have", c};
        }
        flags[c] = 1;
      }
      auto const n = static_cast<std::uint32_t>(wanted.persist_set.size());
      persist_axis = {n, n};
      add_placement(n, std::move(flags));
    } else {
      for (std::uint32_t n = persist_axis.low; n <= persist_axis.high; ++n) {
        add_placement(n, chosen_persistent(n));
      }
    }
    persistences = static_cast<std::uint32_t>(placements.size());
    return {};
  }

  constexpr std::vector<std::uint8_t> chosen_persistent(std::uint32_t n) const {
    std::vector<std::uint8_t> out =
        chunk::persistent_of(rules.placement, layout, std::span(benefits), n);
    PROTRAIN_EXPECT(out.size() == layout.chunks.size(), "placement law: one flag per chunk");
    return out;
  }

  /// As many streamed as are asked for, or none yet.
  constexpr void add_placement(std::uint32_t n, std::vector<std::uint8_t> persistent) {
    std::uint32_t const moving = detail::moving_chunks(step, persistent);
    std::uint32_t const streamed =
        detail::clamp(wanted.streamed.value_or(0), 0, most_streamed(moving));
    placed_as.push_back({n, moving, streamed});
    placements.push_back(with_streamed(std::move(persistent), streamed));
  }

  constexpr std::uint32_t most_streamed(std::uint32_t moving) const {
    std::uint32_t const most = rules.site.most_streamed(moving);
    PROTRAIN_EXPECT(most <= moving, "site law: more streamed chunks than move");
    return most;
  }

  constexpr std::optional<std::uint32_t> wanted_defer() const {
    if (!wanted.defer) {
      return {};
    }
    return detail::clamp(*wanted.defer, 0, std::numeric_limits<std::uint32_t>::max());
  }

  constexpr std::uint32_t ahead() const { return detail::swap_ahead(common.interval); }

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

  constexpr void list_persistent(numbers& out, std::vector<std::uint8_t> const& flags) const {
    bool prefix = true;
    for (std::uint32_t c = 0; c < flags.size(); ++c) {
      prefix = prefix && (flags[c] != 0) == (c < out.persist);
      if (flags[c] != 0) {
        out.persist_set.push_back(c);
      }
    }
    out.listed = !prefix || chosen_persistent(out.persist) != flags;
    if (!out.listed) {
      out.persist_set.clear();
    }
  }
};

}  // namespace protrain::inline v0::plan
