// SPDX-License-Identifier: Apache-2.0
#pragma once
// Facts about a job, measured or analytic: what planning knows. Values only; a trace never holds
// a decision.

#include "protrain/core/ids.hpp"
#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/parameter.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace protrain::inline v0::trace {

/// A block type's pinned strategy. The numbers are those of activation::pin, which lies a level
/// above.
enum class pin : std::uint8_t { free, keep, checkpoint, swap };

/// Where the times come from; the bytes of a dry run are exact.
enum class source : std::uint8_t { analytic, dry_run, measured };

constexpr std::string_view name_of(source s) noexcept {
  switch (s) {
    case source::analytic:
      return "analytic";
    case source::dry_run:
      return "dry_run";
    case source::measured:
      return "measured";
  }
  return "unknown";
}

/// The operator scopes of one name inside a block, added up. Times and saved bytes are without
/// those of scopes inside; the rest of a block is what happens between its scopes.
struct operator_facts {
  text name{};
  picoseconds forward{};
  picoseconds backward{};
  bytes scratch_peak{};  ///< intra-operator delta: most scratch alive inside, of both passes
  bytes saved{};         ///< what forward saves inside
  /// Inter-operator delta: what both passes save or take as scratch, outside any scope, since the
  /// scope before or the pass's start.
  bytes delta_before{};
  bool operator==(operator_facts const&) const = default;
};

/// Most save levels that a block may have.
inline constexpr std::size_t most_levels = 4;

/// A way to save less than everything: after forward some saved tensors are dropped, and a rebuild
/// makes them again right before backward. Bytes as in block_shape.
struct save_level {
  text name{};
  bytes saved{};             ///< what stays from forward to backward
  bytes rebuilt{};           ///< what is dropped after forward, and there again from the rebuild on
  bytes scratch{};           ///< high-water inside the rebuild
  bool reads_input = false;  ///< the rebuild reads x
  picoseconds rebuild{};
  bool operator==(save_level const&) const = default;
};

/// Everything blocks of one shape have in common. Bytes are of one micro-batch, and tensors are
/// rounded up to `address_granule` each inside `saved` and `scratch_*`.
struct block_shape {
  text name{};
  pin pinned = pin::free;
  picoseconds forward{};
  picoseconds backward{};
  bytes input{};             ///< x, also dx; 0 for a block that reads batch tensors only
  bytes output{};            ///< y, also dy; 0 for a loss head
  bytes saved{};             ///< what forward leaves for backward
  bytes scratch_forward{};   ///< high-water inside forward, and inside recompute
  bytes scratch_backward{};  ///< high-water inside backward
  bool reads_input = true;   ///< backward reads x
  /// Level k is levels[k - 1], each dropping more than the one before; level 0 is everything kept.
  std::vector<save_level> levels{};
  std::vector<operator_facts> operators{};
  bool operator==(block_shape const&) const = default;
};

/// A job's facts. `blocks[i]` is the shape of the i-th block in execution order.
struct trace {
  source from = source::analytic;
  model::job job;
  std::vector<model::parameter> parameters{};  ///< in order of first use
  std::vector<shape_id> blocks{};
  std::vector<block_shape> shapes{};
  bytes batch{};    ///< batch tensors of one micro-batch, each rounded up to `address_granule`
  bytes outside{};  ///< device memory taken outside the library
  bool operator==(trace const&) const = default;

  constexpr block_shape const& shape(block_id b) const {
    PROTRAIN_EXPECT(b.index() < blocks.size(), "block outside the trace");
    return shapes[blocks[b.index()].index()];
  }
};

namespace detail {

/// FNV-1a over 64-bit words; strings go in byte by byte.
struct hash_state {
  std::uint64_t value = 0xcbf29ce484222325ULL;
  constexpr void byte(std::uint8_t b) { value = (value ^ b) * 0x100000001b3ULL; }
  constexpr void word(std::uint64_t w) {
    for (int i = 0; i < 8; ++i) {
      byte(static_cast<std::uint8_t>(w >> (8 * i)));
    }
  }
  constexpr void string(std::string_view s) {
    word(s.size());
    for (char const c : s) {
      byte(static_cast<std::uint8_t>(c));
    }
  }
};

}  // namespace detail

/// Identifies the job and everything a program depends on: job, parameter table, block sequence,
/// bytes and pins, but no times. A plan made for one fingerprint is refused for another.
constexpr std::uint64_t fingerprint(trace const& t) {
  detail::hash_state h;
  model::job const& j = t.job;
  for (std::uint64_t const w : {j.micro_batch, j.sequence, j.accumulate, j.world, j.seed}) {
    h.word(w);
  }
  h.byte(static_cast<std::uint8_t>(j.type));
  h.byte(static_cast<std::uint8_t>(j.state));
  h.byte(static_cast<std::uint8_t>((j.skip ? 1U : 0U) | (j.debug ? 2U : 0U)));
  h.word(std::bit_cast<std::uint32_t>(j.clip));
  h.word(std::bit_cast<std::uint32_t>(j.dropout));
  h.word(std::bit_cast<std::uint32_t>(j.loss_scale));
  for (model::parameter const& p : t.parameters) {
    h.string(p.name.view());
    for (std::uint64_t const extent : p.shape) {
      h.word(extent);
    }
    h.byte(static_cast<std::uint8_t>((static_cast<unsigned>(p.type) << 2U) |
                                     (p.trainable ? 2U : 0U) | (p.decay ? 1U : 0U)));
    h.word(std::bit_cast<std::uint32_t>(p.learning_rate_scale));
    for (block_id const b : p.uses) {
      h.word(b.value);
    }
  }
  for (shape_id const s : t.blocks) {
    block_shape const& shape = t.shapes[s.index()];
    h.string(shape.name.view());
    for (bytes const b :
         {shape.input, shape.output, shape.saved, shape.scratch_forward, shape.scratch_backward}) {
      h.word(b.value);
    }
    h.byte(static_cast<std::uint8_t>((static_cast<unsigned>(shape.pinned) << 1U) |
                                     (shape.reads_input ? 1U : 0U)));
    for (save_level const& level : shape.levels) {
      h.string(level.name.view());
      for (bytes const b : {level.saved, level.rebuilt, level.scratch}) {
        h.word(b.value);
      }
      h.byte(level.reads_input ? 1 : 0);
    }
  }
  h.word(t.batch.value);
  return h.value;
}

}  // namespace protrain::inline v0::trace
