// SPDX-License-Identifier: Apache-2.0
#pragma once
// Streamed chunks on their way: parts go up to a slot, are updated there and come back, first come
// first served.

#include "protrain/schedule/detail/carried.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/update/state_format.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// Copies up are emitted as soon as a slot is free; updates, which stand in the way of passes on
/// their queue, only when a pass has been emitted since, or when the chunk can wait no longer.
class streams {
 public:
  constexpr streams(emitter& to, state_rules const& rules) : emit_(to), rules_(rules) {}

  constexpr void set_homes(carried const& homes) {
    at_ = homes;
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      if (auto const id = make_id<chunk_id>(c); rules_.streamed(id)) {
        chunk_homes const& home = at_.chunks[c];
        for (allocation_id const a : {home.value, home.state, home.store}) {
          emit_.split(a, rules_.parts(id));
        }
      }
    }
  }

  /// The update of a chunk from the values of `version`. `gradient` is a device slot that holds the
  /// whole of it, or absent where the gradient waits in its store.
  constexpr void add(chunk_id c, allocation_id gradient, std::uint32_t version) {
    waiting_.push_back({.chunk = c, .gradient = gradient, .version = version});
    go_up();
  }

  /// After a pass: what has gone up before it is updated and comes back, more goes up.
  constexpr void advance() {
    for (std::size_t n = up_.size(); n > 0; --n) {
      come_back();
    }
    go_up();
  }

  constexpr bool pending(chunk_id c) const {
    return std::ranges::any_of(waiting_, [c](part const& p) { return p.chunk == c; }) ||
           std::ranges::any_of(up_, [c](part const& p) { return p.chunk == c; });
  }
  /// Until the chunk has come back, and all that came before it.
  constexpr void finish(chunk_id c) {
    while (pending(c)) {
      come_back();
      go_up();
    }
  }
  constexpr void finish_all() {
    while (!up_.empty()) {
      come_back();
      go_up();
    }
  }
  /// Until nobody reads this slot any more.
  constexpr void release(allocation_id gradient) {
    for (std::vector<part> const* list : {&waiting_, &up_}) {
      auto const user = std::ranges::find(*list, gradient, &part::gradient);
      if (gradient.valid() && user != list->end()) {
        finish(user->chunk);
        return;
      }
    }
  }

 private:
  /// The next part of a chunk that waits, or one that is in a slot.
  struct part {
    chunk_id chunk{};
    allocation_id gradient{};
    std::uint32_t version = 0;
    std::uint32_t index = 0;
    allocation_id slot{};
  };

  constexpr std::uint64_t first_element(part const& p) const {
    return p.index * rules_.part_elements(p.chunk);
  }
  constexpr std::uint64_t elements(part const& p) const {
    return std::min(rules_.part_elements(p.chunk), rules_.shard(p.chunk) - first_element(p));
  }
  /// The part's bytes of an array of `width` per element that starts at `offset`.
  constexpr operand range(part const& p, std::uint64_t offset, std::uint64_t width) const {
    return {.offset = offset + first_element(p) * width,
            .bytes = elements(p) * width,
            .chunk = p.chunk};
  }
  constexpr instruction at(part const& p, opcode op, queue_id q) const {
    return {.op = op, .queue = q, .chunk = p.chunk, .version = p.version, .part = p.index};
  }

  constexpr void go_up() {
    while (!waiting_.empty() && up_.size() < at_.streaming.size()) {
      part& next = waiting_.front();
      next.slot = at_.streaming[taken_++ % at_.streaming.size()];
      up_.push_back(next);
      copy(next, true);
      if (++next.index == rules_.parts(next.chunk)) {
        waiting_.erase(waiting_.begin());
      }
    }
  }

  constexpr void come_back() {
    update(up_.front());
    copy(up_.front(), false);
    up_.erase(up_.begin());
  }

  /// In a slot lie value, state and store, one behind the other.
  constexpr operand in_slot(part const& p, std::uint64_t before, std::uint64_t width) const {
    return {.offset = elements(p) * before, .bytes = elements(p) * width, .chunk = p.chunk};
  }
  constexpr operand value_in_slot(part const& p) const {
    return in_slot(p, 0, rules_.bytes().value);
  }
  constexpr operand state_in_slot(part const& p) const {
    return in_slot(p, rules_.bytes().value, rules_.bytes().state);
  }
  constexpr operand store_in_slot(part const& p) const {
    return in_slot(p, rules_.bytes().value + rules_.bytes().state, rules_.store_bytes(p.chunk));
  }

  constexpr void copy(part const& p, bool up) {
    update::state_bytes const& b = rules_.bytes();
    chunk_homes const& home = at_.chunks[p.chunk.index()];
    bool const store = up && home.store.valid();
    access const device = up ? access::write : access::read;
    access const host = up ? access::read : access::write;
    instruction i =
        at(p, up ? opcode::state_in : opcode::state_out, up ? queue_id::h2d : queue_id::d2h);
    i.version += up ? 0U : 1U;
    i.amount = elements(p) * (store ? rules_.streamed_bytes(p.chunk) : b.value + b.state);
    emit_.begin(i);
    emit_.use(role::value, device, p.slot, value_in_slot(p));
    emit_.use(role::value, host, home.value, range(p, 0, b.value), p.index);
    emit_.use(role::state, device, p.slot, state_in_slot(p));
    update::state_arrays const arrays = update::arrays_of(b);
    std::uint64_t array = 0;
    for (std::uint32_t k = 0; k < arrays.count; ++k) {
      emit_.use(role::state, host, home.state, range(p, array, arrays.bytes[k]), p.index);
      array += rules_.shard(p.chunk) * arrays.bytes[k];
    }
    if (store) {
      emit_.use(role::store, device, p.slot, store_in_slot(p));
      emit_.use(role::store, host, home.store, range(p, 0, rules_.store_bytes(p.chunk)), p.index);
    }
    emit_.end();
  }

  constexpr void update(part const& p) {
    instruction i = at(p, opcode::update_part, queue_id::compute);
    i.amount = elements(p);
    emit_.begin(i);
    emit_.use(role::value, access::read_write, p.slot, value_in_slot(p));
    emit_.use(role::state, access::read_write, p.slot, state_in_slot(p));
    if (p.gradient.valid()) {
      operand mine = range(p, 0, rules_.bytes().gradient);
      mine.stride = rules_.ranks() > 1 ? rules_.gradient_shard(p.chunk) : 0;
      emit_.use(role::gradient, access::read, p.gradient, mine);
    } else {
      emit_.use(role::store, access::read, p.slot, store_in_slot(p));
    }
    emit_.use(role::scalars, access::read, at_.device_scalars);
    emit_.end();
  }

  emitter& emit_;
  state_rules const& rules_;
  carried at_{};
  std::vector<part> waiting_{};  ///< each chunk's next part
  std::vector<part> up_{};       ///< in slots, oldest first
  std::size_t taken_ = 0;        ///< slots so far
};

}  // namespace protrain::inline v0::schedule::detail
