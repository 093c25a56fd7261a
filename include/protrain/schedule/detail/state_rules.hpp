// SPDX-License-Identifier: Apache-2.0
#pragma once
// What follows from job, layout and knobs about each chunk's states: which exist, how large one
// rank's share is, and when they are updated.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

class state_rules {
 public:
  constexpr state_rules(trace::trace const& t,
                        chunk::layout const& l,
                        knobs const& k,
                        update::state_bytes const& b,
                        std::vector<gradient_span> const& spans)
      : facts_(t),
        layout_(l),
        knobs_(k),
        bytes_(b),
        spans_(l.chunks.size(), 0),
        deferred_(l.chunks.size(), 0) {
    for (gradient_span const& s : spans) {
      ++spans_[s.chunk.index()];
    }
    defer();
  }

  constexpr update::state_bytes const& bytes() const { return bytes_; }
  constexpr std::uint64_t ranks() const { return facts_.job.world; }
  constexpr std::size_t chunks() const { return spans_.size(); }
  constexpr update::site site(chunk_id c) const { return knobs_.sites[c.index()]; }
  constexpr bool persistent(chunk_id c) const { return knobs_.persistent[c.index()] != 0; }
  /// Where the chunk's whole gradient is read: sums are made there, and norms.
  constexpr bool gradient_on_device(chunk_id c) const {
    return site(c) == update::site::gpu || (streamed(c) && !stored(c));
  }
  constexpr queue_id queue(chunk_id c) const {
    return gradient_on_device(c) ? queue_id::compute : queue_id::cpu;
  }
  constexpr space where(chunk_id c) const { return persistent(c) ? space::device : space::host; }

  /// True for a chunk that trains: a trainable tensor is used by some block.
  constexpr bool updated(chunk_id c) const { return spans_[c.index()] > 0; }
  constexpr std::uint32_t spans(chunk_id c) const { return spans_[c.index()]; }
  constexpr std::uint64_t contributions(chunk_id c) const {
    return checked_mul(spans_[c.index()], facts_.job.accumulate);
  }

  /// True when the chunk's state goes to the device for its update.
  constexpr bool streamed(chunk_id c) const {
    return site(c) == update::site::streamed && updated(c);
  }
  /// Elements of a part of a rank's shard; the last part may have fewer.
  constexpr std::uint64_t part_elements(chunk_id c) const {
    return streamed(c) ? schedule::part_elements(shard(c), knobs_.stream_parts) : 0;
  }
  constexpr std::uint32_t parts(chunk_id c) const {
    return static_cast<std::uint32_t>(ceil_div(shard(c), part_elements(c)));
  }
  constexpr std::vector<std::uint64_t> all_parts() const {
    std::vector<std::uint64_t> out{};
    out.reserve(chunks());
    for (std::size_t c = 0; c < chunks(); ++c) {
      out.push_back(part_elements(make_id<chunk_id>(c)));
    }
    return out;
  }
  /// Bytes per element that go up for an update.
  constexpr std::uint64_t streamed_bytes(chunk_id c) const {
    return bytes_.value + bytes_.state + (stored(c) ? store_bytes(c) : 0);
  }
  constexpr std::uint32_t streaming_slots() const { return knobs_.streaming_slots; }

  /// True when the chunk's own update belongs to the next step.
  constexpr bool deferred(chunk_id c) const { return deferred_[c.index()] != 0; }
  constexpr std::vector<std::uint8_t> const& all_deferred() const { return deferred_; }
  /// True when updates come after the norm in program order.
  constexpr bool waits() const {
    return knobs_.time == update::timing::after_backward ||
           (knobs_.time == update::timing::before_next_use && needs_norm(facts_.job));
  }
  /// True when the gradient outlives its slot.
  constexpr bool stored(chunk_id c) const {
    return updated(c) && (contributions(c) > 1 || waits() || deferred(c));
  }

  // Sizes. A rank's shard is its share of what is sharded; the whole of it on one rank.
  constexpr std::uint64_t elements(chunk_id c) const { return layout_[c].elements; }
  constexpr std::uint64_t shard(chunk_id c) const { return elements(c) / ranks(); }
  constexpr std::uint64_t value_bytes(chunk_id c) const {
    return checked_mul(elements(c), bytes_.value);
  }
  constexpr std::uint64_t value_shard(chunk_id c) const { return shard(c) * bytes_.value; }
  constexpr std::uint64_t gradient_bytes(chunk_id c) const {
    return checked_mul(elements(c), bytes_.gradient);
  }
  constexpr std::uint64_t gradient_shard(chunk_id c) const { return shard(c) * bytes_.gradient; }
  constexpr std::uint64_t state_shard(chunk_id c) const {
    return checked_mul(shard(c), bytes_.state);
  }
  constexpr std::uint64_t store_shard(chunk_id c) const {
    return checked_mul(shard(c), store_bytes(c));
  }
  /// Per element.
  constexpr std::uint64_t store_bytes(chunk_id c) const {
    return contributions(c) > 1 ? 4 : bytes_.gradient;
  }

 private:
  /// The first chunks in forward order that aren't persistent: they are needed first.
  constexpr void defer() {
    std::uint32_t left = knobs_.time == update::timing::before_next_use ? knobs_.defer : 0;
    for (std::size_t c = 0; c < spans_.size() && left > 0; ++c) {
      if (spans_[c] > 0 && knobs_.sites[c] != update::site::gpu) {
        deferred_[c] = 1;
        --left;
      }
    }
  }

  trace::trace const& facts_;
  chunk::layout const& layout_;
  knobs const& knobs_;
  update::state_bytes bytes_;
  std::vector<std::uint32_t> spans_;
  std::vector<std::uint8_t> deferred_;
};

}  // namespace protrain::inline v0::schedule::detail
