// SPDX-License-Identifier: Apache-2.0
#pragma once
// A point of the space, and what it decides.

#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/plan/detail/ranges.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/space.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/update/site.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// One point of the space with its bounds.
struct candidate {
  std::uint32_t placement = 0;   ///< position in space_of::placements
  std::uint32_t assignment = 0;  ///< position in space_of::assignments
  std::uint32_t buffers = 0;
  std::uint32_t slots = 0;  ///< for streamed parts, if any are
  picoseconds bound{};
  cost::live_bytes least{};
};

/// What a candidate of a space decides, as the compiler takes it.
template <class Policies>
constexpr schedule::knobs knobs_of(space_of<Policies> const& all, candidate const& c) {
  schedule::knobs out{.persistent = all.placements[c.placement].persistent,
                      .strategies = all.assignments[c.assignment].strategies,
                      .levels = all.assignments[c.assignment].levels,
                      .buffers = c.buffers,
                      .swap_ahead = all.ahead(),
                      .gradient_slots = all.gradient_slots[c.assignment],
                      .time = all.common.time,
                      .defer = all.placements[c.placement].defer,
                      .unroll = all.common.unroll};
  if (all.placed_as[c.placement].streamed > 0) {
    out.streaming_slots = c.slots;
  }
  for (std::size_t at = 0; at < out.persistent.size(); ++at) {
    bool const streamed = all.placements[c.placement].streamed[at] != 0;
    update::site const away = streamed ? update::site::streamed : update::site::cpu;
    out.sites.push_back(out.persistent[at] != 0 ? update::site::gpu : away);
  }
  return out;
}

/// Names the persistent chunks where their number says too little.
template <class Policies>
constexpr void list_persistent(numbers& out,
                               space_of<Policies> const& all,
                               std::vector<std::uint8_t> const& flags) {
  bool prefix = true;
  for (std::uint32_t c = 0; c < flags.size(); ++c) {
    prefix = prefix && (flags[c] != 0) == (c < out.persist);
    if (flags[c] != 0) {
      out.persist_set.push_back(c);
    }
  }
  out.listed = !prefix || all.chosen_persistent(out.persist) != flags;
  if (!out.listed) {
    out.persist_set.clear();
  }
}

/// The same as a plan string has it.
template <class Policies>
constexpr numbers numbers_of(space_of<Policies> const& all, candidate const& c) {
  placement_numbers const& placed = all.placed_as[c.placement];
  numbers out = all.common;
  out.persist = placed.persist;
  out.moving = placed.moving;
  out.streamed = placed.streamed;
  out.gradient_slots = all.gradient_slots[c.assignment];
  out.streaming_slots = out.streamed > 0 ? c.slots : 0;
  out.buffer = c.buffers;
  out.defer = placed.defer;
  out.swap = all.counts[c.assignment].swap;
  out.checkpoint = all.counts[c.assignment].checkpoint;
  out.levels = all.counts[c.assignment].levels;
  out.depth = all.depth;
  list_persistent(out, all, all.placements[c.placement].persistent);
  return out;
}

}  // namespace protrain::inline v0::plan::detail
