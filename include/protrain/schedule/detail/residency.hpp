// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which chunk is in which buffer at every stage: uploads, look-ahead and eviction.

#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/schedule/detail/streams.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// The order in which a segment runs blocks: forward then, where gradients are made, backward of
/// each micro-batch. A recompute belongs to its block's backward stage.
struct stages {
  std::uint32_t blocks = 0;
  std::uint32_t micro_batches = 1;
  bool backward_too = true;

  /// Stages of one micro-batch.
  constexpr std::uint32_t round() const { return backward_too ? 2 * blocks : blocks; }
  constexpr std::uint32_t count() const { return round() * micro_batches; }
  constexpr std::uint32_t forward(std::uint32_t m, std::uint32_t b) const {
    return round() * m + b;
  }
  constexpr std::uint32_t backward(std::uint32_t m, std::uint32_t b) const {
    return round() * m + 2 * blocks - 1 - b;
  }
  constexpr std::uint32_t block_at(std::uint32_t stage) const {
    std::uint32_t const in = stage % round();
    return in < blocks ? in : 2 * blocks - 1 - in;
  }
};

template <chunk::eviction_policy Eviction>
class residency {
 public:
  constexpr residency(emitter& to,
                      chunk::layout const& l,
                      stages const& s,
                      std::vector<std::uint8_t> const& persistent,
                      state_rules const& rules,
                      Eviction const& policy,
                      streams& streamed)
      : emit_(to),
        layout_(l),
        stages_(s),
        persistent_(persistent),
        rules_(rules),
        policy_(policy),
        streams_(streamed),
        host_(l.chunks.size(), allocation_id{}),
        device_(l.chunks.size(), allocation_id{}) {}

  /// Host home of a chunk that isn't persistent, device home of one that is.
  constexpr void set_home(chunk_id c, allocation_id home) {
    (persistent_[c.index()] != 0 ? device_ : host_)[c.index()] = home;
  }
  constexpr allocation_id home(chunk_id c) const {
    return (persistent_[c.index()] != 0 ? device_ : host_)[c.index()];
  }
  constexpr void add_buffer(allocation_id memory) { slots_.push_back({.memory = memory}); }

  /// Makes the chunks of `stage` resident and prefetches as far as buffers reach: an upload never
  /// evicts a chunk that is needed before the one it brings.
  constexpr void enter(std::uint32_t stage) {
    drop_oversize(stage);
    for (chunk_id const c : needed(stage)) {
      if (moves(c)) {
        require(c, stage);
      }
    }
    if (stage + 1 < stages_.count()) {
      for (chunk_id const c : needed(stage + 1)) {
        if (moves(c) && layout_[c].oversize) {
          require(c, stage);
        }
      }
    }
    look_ahead(stage);
  }

  /// Where the chunk's values are at the current stage; absent for an empty chunk.
  constexpr allocation_id resident(chunk_id c) const { return device_[c.index()]; }

  /// Returns the dedicated slots that are still live.
  constexpr void leave() { drop_oversize(stages_.count()); }

 private:
  struct slot {
    allocation_id memory;
    chunk_id holds{};
    std::uint32_t last_use = 0;
    std::uint32_t arrived = 0;
  };

  constexpr std::vector<chunk_id> const& needed(std::uint32_t stage) const {
    return layout_.chunks_of[stages_.block_at(stage)];
  }
  constexpr bool moves(chunk_id c) const {
    return persistent_[c.index()] == 0 && layout_[c].elements > 0;
  }
  constexpr bool needed_at(chunk_id c, std::uint32_t stage) const {
    auto const& in = needed(stage);
    return std::binary_search(in.begin(), in.end(), c);
  }

  /// First stage after `stage` that uses the chunk.
  constexpr std::uint32_t next_use(chunk_id c, std::uint32_t stage) const {
    std::uint32_t const round = stages_.round();
    std::uint32_t best = chunk::never;
    for (block_id const b : layout_[c].blocks) {
      std::uint32_t const back = stages_.backward_too ? round - 1 - b.value : b.value;
      for (std::uint32_t const at : {b.value, back}) {
        std::uint32_t const base = stage / round * round + at;
        std::uint32_t const next = base > stage ? base : base + round;
        best = next < stages_.count() ? std::min(best, next) : best;
      }
    }
    return best;
  }

  constexpr void upload(chunk_id c, allocation_id into) {
    streams_.finish(c);
    std::uint64_t const own = rules_.value_shard(c);
    bool const several = rules_.ranks() > 1;
    emit_.begin(
        {.op = opcode::upload, .queue = queue_id::h2d, .chunk = c, .version = 1, .amount = own});
    emit_.use(role::value, access::read, host_[c.index()], {.chunk = c});
    emit_.use(
        role::value, access::write, into, {.bytes = own, .stride = several ? own : 0, .chunk = c});
    emit_.end();
    if (several) {
      std::uint64_t const all = rules_.value_bytes(c);
      emit_.begin({.op = opcode::gather,
                   .queue = queue_id::gather,
                   .chunk = c,
                   .version = 1,
                   .amount = all});
      emit_.use(role::value, access::read_write, into, {.bytes = all, .chunk = c});
      emit_.end();
    }
    device_[c.index()] = into;
  }

  constexpr void require(chunk_id c, std::uint32_t stage) {
    if (layout_[c].oversize) {
      if (!device_[c.index()].valid()) {
        upload(c,
               emit_.take({.where = space::device,
                           .what = category::parameter_buffers,
                           .bytes = rules_.value_bytes(c),
                           .chunk = c}));
        oversize_.push_back(c);
      }
      return;
    }
    bool const found = device_[c.index()].valid() || load(c, stage, stage);
    PROTRAIN_EXPECT(found, "fewer buffers than one block needs");
    for (slot& s : slots_) {
      s.last_use = s.holds == c ? stage : s.last_use;
    }
  }

  /// Uploads `c` for its use at `use`, into an empty slot or in place of a chunk that neither
  /// `stage` needs nor anything up to `use`. False when there is none.
  constexpr bool load(chunk_id c, std::uint32_t stage, std::uint32_t use) {
    std::vector<chunk::resident> candidates;
    std::vector<std::size_t> at;
    std::size_t chosen = slots_.size();
    for (std::size_t i = 0; i < slots_.size() && chosen == slots_.size(); ++i) {
      slot const& s = slots_[i];
      if (!s.holds.valid()) {
        chosen = i;
      } else if (!needed_at(s.holds, stage)) {
        std::uint32_t const next = next_use(s.holds, stage);
        if (use == stage || next > use) {
          candidates.push_back({s.holds, s.last_use, next, s.arrived});
          at.push_back(i);
        }
      }
    }
    if (chosen == slots_.size()) {
      auto const victim = chunk::evict_one(policy_, std::span<chunk::resident const>(candidates));
      if (!victim) {
        return false;
      }
      chosen = at[*victim];
    }
    slot& s = slots_[chosen];
    if (s.holds.valid()) {
      device_[s.holds.index()] = {};
    }
    s.holds = c;
    s.last_use = chunk::never;
    s.arrived = stage;
    upload(c, s.memory);
    return true;
  }

  /// Regular chunks of all stages up to `cursor_` are resident; moves it on until a buffer is
  /// missing, or a chunk is on its way for an update: to wait for it would hold passes up.
  constexpr void look_ahead(std::uint32_t stage) {
    std::uint32_t const last = std::min(stages_.count() - 1, stage + stages_.round());
    for (std::uint32_t t = std::max(stage + 1, cursor_); t <= last; ++t) {
      for (chunk_id const c : needed(t)) {
        bool const missing = moves(c) && !layout_[c].oversize && !device_[c.index()].valid();
        if (missing && (streams_.pending(c) || !load(c, stage, t))) {
          return;
        }
      }
      cursor_ = t;
    }
  }

  /// Frees dedicated slots that neither `stage` nor the one before or after it uses.
  constexpr void drop_oversize(std::uint32_t stage) {
    std::size_t kept = 0;
    for (chunk_id const c : oversize_) {
      bool const soon =
          stage < stages_.count() &&
          (needed_at(c, stage) || (stage + 1 < stages_.count() && needed_at(c, stage + 1)));
      if (soon) {
        oversize_[kept++] = c;
      } else {
        emit_.give(device_[c.index()]);
      }
    }
    while (oversize_.size() > kept) {
      oversize_.pop_back();
    }
  }

  emitter& emit_;
  chunk::layout const& layout_;
  stages stages_;
  std::vector<std::uint8_t> const& persistent_;
  state_rules const& rules_;
  Eviction const& policy_;
  streams& streams_;
  std::vector<slot> slots_;
  std::vector<chunk_id> oversize_;
  std::vector<allocation_id> host_;
  std::vector<allocation_id> device_;
  std::uint32_t cursor_ = 0;
};

}  // namespace protrain::inline v0::schedule::detail
