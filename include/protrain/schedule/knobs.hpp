// SPDX-License-Identifier: Apache-2.0
#pragma once
// The plan's decisions in the form that compile takes, and the limits within which they make sense.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule {

inline constexpr std::uint32_t default_unroll = 4;
inline constexpr std::uint32_t default_stream_parts = 8;

/// How a step's micro-batches are spread over programs: `first` of them in the first one, as many
/// in each of `middles` further ones, the rest in the last. All in the first if one is enough.
struct cut {
  std::uint32_t first = 1;
  std::uint32_t middles = 0;
  std::uint32_t last = 0;
  constexpr bool whole() const { return last == 0; }
  bool operator==(cut const&) const = default;
};

/// As few programs as `unroll` allows, the last one no larger than the others.
constexpr cut cut_step(std::uint64_t micro_batches, std::uint32_t unroll) {
  auto const all = static_cast<std::uint32_t>(micro_batches);
  if (all <= unroll) {
    return {.first = all};
  }
  auto const programs = static_cast<std::uint32_t>(ceil_div(all, unroll));
  auto const each = static_cast<std::uint32_t>(ceil_div(all, programs));
  return {.first = each, .middles = programs - 2, .last = all - each * (programs - 1)};
}

/// Together with job and layout these determine a program. Never durations, rates or budgets.
struct knobs {
  std::vector<std::uint8_t> persistent{};          ///< by chunk: stays on the device
  std::vector<update::site> sites{};               ///< by chunk; gpu exactly where persistent
  std::vector<activation::strategy> strategies{};  ///< by block
  std::vector<std::uint8_t> levels{};  ///< by block that is kept: its save level; empty: all 0
  std::uint32_t buffers = 0;           ///< regular slots for chunks that are not persistent
  std::uint32_t swap_ahead = 1;      ///< a swapped block starts to come back this many blocks early
  std::uint32_t gradient_slots = 2;  ///< gradient slots that may be in flight, at least 2
  update::timing time = update::timing::after_backward;
  /// With before_next_use: chunks that are not persistent and are updated at the start of the next
  /// step, first in forward order.
  std::uint32_t defer = 0;
  /// The most micro-batches that one program runs. A step of more is cut into equal programs, at
  /// whose joints no chunk stays in a buffer and nothing is under way.
  std::uint32_t unroll = default_unroll;
  std::uint32_t streaming_slots = 2;  ///< parts of streamed chunks that may be on the device
  /// The most parts that a streamed chunk is cut into: each takes three instructions, and as many
  /// elements of the rank's shard as the others.
  std::uint32_t stream_parts = default_stream_parts;
  bool operator==(knobs const&) const = default;
};

/// Elements of a part of a streamed chunk, of which a rank has `shard`; the last part has what is
/// left.
constexpr std::uint64_t part_elements(std::uint64_t shard, std::uint32_t most_parts) {
  return round_up(ceil_div(shard, most_parts), element_granule);
}

/// Fewest buffers with which every block finds its chunks resident: the most regular,
/// non-persistent, non-empty chunks that one block needs.
constexpr std::uint32_t fewest_buffers(chunk::layout const& l,
                                       std::vector<std::uint8_t> const& persistent) {
  std::uint32_t most = 0;
  for (std::vector<chunk_id> const& needed : l.chunks_of) {
    std::uint32_t n = 0;
    for (chunk_id const c : needed) {
      bool const slot = persistent[c.index()] == 0 && !l[c].oversize && l[c].elements > 0;
      n += slot ? 1U : 0U;
    }
    most = n > most ? n : most;
  }
  return most;
}

/// More buffers than this are never used: one for each chunk that needs one.
constexpr std::uint32_t most_buffers(chunk::layout const& l,
                                     std::vector<std::uint8_t> const& persistent) {
  std::uint32_t n = 0;
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    n += persistent[c] == 0 && !l.chunks[c].oversize && l.chunks[c].elements > 0 ? 1U : 0U;
  }
  return n;
}

}  // namespace protrain::inline v0::schedule
