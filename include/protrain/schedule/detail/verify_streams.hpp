// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: meaning of the instructions that update a streamed chunk part by part.

#include "protrain/schedule/detail/verify_machine.hpp"
#include "protrain/schedule/detail/verify_passes.hpp"
#include "protrain/schedule/detail/verify_states.hpp"
#include "protrain/update/state_format.hpp"

#include <cstdint>

namespace protrain::inline v0::schedule::detail {

/// One part of one array of a chunk's home: `width` bytes per element from `array` on.
struct home_array {
  std::uint32_t home = 0;   ///< 1 + allocation
  std::uint64_t bytes = 0;  ///< of the home
  std::uint64_t array = 0;
  std::uint64_t width = 0;
};

constexpr operand range_of(machine const& m, chunk_id c, std::uint64_t part, home_array const& h) {
  return {.allocation = {h.home - 1},
          .offset = h.array + part * m.p.part_elements[c.index()] * h.width,
          .bytes = m.elements(c, part) * h.width};
}

constexpr home_array value_array(machine const& m, chunk_id c) {
  return {m.values[c.index()], m.value_shard(c), 0, m.bytes.value};
}
constexpr home_array store_array(machine const& m, chunk_id c) {
  return {m.stores[c.index()], m.store_shard(c), 0, m.store_bytes(c)};
}
/// Calls f with each array of the chunk's state.
template <class F>
constexpr void each_state_array(machine const& m, chunk_id c, F const& f) {
  update::state_arrays const arrays = update::arrays_of(m.bytes);
  std::uint64_t at = 0;
  for (std::uint32_t k = 0; k < arrays.count; ++k) {
    f(home_array{m.states[c.index()], m.state_shard(c), at, arrays.bytes[k]});
    at += m.shard(c) * arrays.bytes[k];
  }
}

/// What `part` of an array holds: its own content, or its share of the whole home's.
constexpr content part_content(machine const& m,
                               chunk_id c,
                               std::uint64_t part,
                               home_array const& h) {
  content have = m.memory.get(range_of(m, c, part, h));
  if (have.what == holds::nothing) {
    have = m.memory.get({.allocation = {h.home - 1}, .bytes = h.bytes});
  }
  have.part = have.what == holds::nothing ? 0 : static_cast<std::uint32_t>(part) + 1;
  return have;
}

constexpr operand whole_value(machine const& m, chunk_id c) {
  return {.allocation = {m.values[c.index()] - 1}, .bytes = m.value_shard(c)};
}
constexpr operand whole_state(machine const& m, chunk_id c) {
  return {.allocation = {m.states[c.index()] - 1}, .bytes = m.state_shard(c)};
}

/// From now on each part of the home says for itself what it holds.
constexpr void split_home(machine& m, chunk_id c) {
  auto const split = [&](home_array const& h, content now) {
    for (std::uint64_t part = 0; part < m.parts(c) && now.what != holds::nothing; ++part) {
      now.part = static_cast<std::uint32_t>(part) + 1;
      m.memory.set(range_of(m, c, part, h), now);
    }
  };
  content const state = m.memory.get(whole_state(m, c));
  split(value_array(m, c), m.memory.get(whole_value(m, c)));
  each_state_array(m, c, [&](home_array const& h) { split(h, state); });
}

/// All parts are back: the home is a whole again.
constexpr void join_home(machine& m, chunk_id c, std::uint32_t version) {
  content state = value_of(c, version);
  state.what = holds::state;
  m.memory.set(whole_value(m, c), value_of(c, version));
  m.memory.set(whole_state(m, c), state);
}

/// The part that the instruction names, of what, after `updates` updates.
constexpr content part_of(operands const& o, holds what, std::uint32_t updates) {
  return {.what = what, .of = o.i.chunk.value, .count = updates, .part = o.i.part + 1};
}

/// The part's share of all contributions; of the step before, where that left the update over.
constexpr content store_part(operands& o) {
  machine const& m = o.state();
  content out = part_of(o, holds::store, static_cast<std::uint32_t>(m.contributions(o.i.chunk)));
  out.micro_batch = m.deferred(o.i.chunk) ? 1 : 0;
  return out;
}

/// The instruction names a part of a streamed chunk and the version that it is due for.
constexpr bool names_part(operands& o, std::uint32_t version) {
  machine const& m = o.state();
  if (!o.names_chunk()) {
    return false;
  }
  o.require(m.streamed(o.i.chunk), rejection::malformed, "no streamed chunk");
  if (!o.ok()) {
    return false;
  }
  o.require(o.i.part < m.parts(o.i.chunk), rejection::malformed, "no such part");
  bool const before = check_update(o);
  o.require(o.i.version == (before ? version : version + 1),
            rejection::wrong_version,
            "an update of another step's version");
  return o.ok();
}

/// Takes the operand that is the part of `h`, which must hold `want`.
constexpr void read_home(operands& o, role r, home_array const& h, content const& want) {
  machine const& m = o.state();
  operand const* from =
      o.take(r, access::read, space::host, m.elements(o.i.chunk, o.i.part) * h.width);
  if (from == nullptr) {
    return;
  }
  operand const mine = range_of(m, o.i.chunk, o.i.part, h);
  o.require(from->allocation == mine.allocation && from->offset == mine.offset,
            rejection::not_resident,
            "not the part's place");
  if (o.ok()) {
    content const have = part_content(m, o.i.chunk, o.i.part, h);
    o.require(have.same_thing(want), rejection::not_resident, "the part isn't whole");
    o.require(have == want,
              r == role::store ? rejection::missing_accumulate : rejection::wrong_version,
              "a part at another stage than needed");
  }
}

/// Value, state and store of a part, each to a place of its own in the slot.
constexpr void run_state_in(operands& o) {
  machine& m = o.state();
  if (!names_part(o, 0)) {
    return;
  }
  chunk_id const c = o.i.chunk;
  std::uint64_t const n = m.elements(c, o.i.part);
  std::uint64_t amount = n * (m.bytes.value + m.bytes.state);
  content const value = part_of(o, holds::value, o.i.version);
  o.write(role::value, space::device, n * m.bytes.value, value);
  read_home(o, role::value, value_array(m, c), value);
  content const state = part_of(o, holds::state, o.i.version);
  o.write(role::state, space::device, n * m.bytes.state, state);
  each_state_array(m, c, [&](home_array const& h) { read_home(o, role::state, h, state); });
  if (o.next_is(role::store)) {
    o.require(m.stores[c.index()] != 0, rejection::malformed, "a store that isn't there");
    content const store = store_part(o);
    o.write(role::store, space::device, n * m.store_bytes(c), store);
    if (o.ok()) {
      read_home(o, role::store, store_array(m, c), store);
    }
    amount += n * m.store_bytes(c);
  }
  o.done(amount);
}

/// The part's share of the chunk's whole gradient: what came up from the store, or the device's
/// slot with the only contribution.
constexpr void read_part_gradient(operands& o) {
  machine const& m = o.state();
  chunk_id const c = o.i.chunk;
  std::uint64_t const n = m.elements(c, o.i.part);
  if (o.next_is(role::store)) {
    o.read(role::store,
           space::device,
           n * m.store_bytes(c),
           store_part(o),
           rejection::missing_accumulate,
           rejection::missing_accumulate);
    return;
  }
  operand const* g = o.take(role::gradient, access::read, space::device, n * m.bytes.gradient);
  if (g == nullptr) {
    return;
  }
  std::uint64_t const before = o.i.part * m.p.part_elements[c.index()] * m.bytes.gradient;
  o.require(g->offset >= before, rejection::wrong_contribution, "not this part's gradient");
  if (!o.ok()) {
    return;
  }
  operand whole = *g;
  whole.offset -= before;
  whole.bytes = m.gradient_shard(c);
  content have = m.memory.get(whole);
  have = have.what == holds::nothing ? unreduced(m, whole, space::device) : have;
  check_total(o, have);
}

/// Value or state of the part in its slot, which becomes an update newer.
constexpr void update_in_slot(operands& o, role r, holds what, std::uint64_t width) {
  machine& m = o.state();
  operand const* in =
      o.take(r, access::read_write, space::device, m.elements(o.i.chunk, o.i.part) * width);
  if (in == nullptr) {
    return;
  }
  content const have = m.memory.get(*in);
  content const now = part_of(o, what, o.i.version + 1);
  o.require(have != now, rejection::double_update, "a part is updated twice");
  o.require(
      have == part_of(o, what, o.i.version), rejection::not_resident, "the part isn't in the slot");
  m.memory.set(*in, now);
}

constexpr void run_update_part(operands& o) {
  machine const& m = o.state();
  if (!names_part(o, 0)) {
    return;
  }
  std::uint64_t const n = m.elements(o.i.chunk, o.i.part);
  update_in_slot(o, role::value, holds::value, m.bytes.value);
  update_in_slot(o, role::state, holds::state, m.bytes.state);
  read_part_gradient(o);
  o.read(role::scalars, space::device, scalars_bytes, scalars_of(m, m.deferred(o.i.chunk)));
  o.done(n);
}

/// The host's copy of a part takes an update's outcome once.
constexpr void write_home(operands& o, role r, home_array const& h, content const& now) {
  machine& m = o.state();
  operand const* to =
      o.take(r, access::write, space::host, m.elements(o.i.chunk, o.i.part) * h.width);
  if (to == nullptr) {
    return;
  }
  operand const mine = range_of(m, o.i.chunk, o.i.part, h);
  o.require(to->allocation == mine.allocation && to->offset == mine.offset,
            rejection::not_resident,
            "not the part's place");
  if (o.ok()) {
    o.require(part_content(m, o.i.chunk, o.i.part, h).count < now.count,
              rejection::double_update,
              "a part comes back twice");
    m.memory.set(mine, now);
  }
}

constexpr void run_state_out(operands& o) {
  machine& m = o.state();
  if (!names_part(o, 1)) {
    return;
  }
  chunk_id const c = o.i.chunk;
  std::uint64_t const n = m.elements(c, o.i.part);
  if (m.returned[c.index()] == 0) {
    split_home(m, c);
  }
  content const value = part_of(o, holds::value, o.i.version);
  content const state = part_of(o, holds::state, o.i.version);
  o.read(role::value,
         space::device,
         n * m.bytes.value,
         value,
         rejection::not_resident,
         rejection::missing_update);
  write_home(o, role::value, value_array(m, c), value);
  o.read(role::state,
         space::device,
         n * m.bytes.state,
         state,
         rejection::not_resident,
         rejection::missing_update);
  each_state_array(m, c, [&](home_array const& h) { write_home(o, role::state, h, state); });
  o.done(n * (m.bytes.value + m.bytes.state));
  if (!o.ok() || ++m.returned[c.index()] < m.parts(c)) {
    return;
  }
  ++m.updates[c.index()];
  join_home(m, c, o.i.version);
  if (m.deferred(c) && m.stores[c.index()] != 0) {
    m.memory.set({.allocation = {m.stores[c.index()] - 1}, .bytes = m.store_shard(c)}, {});
  }
}

}  // namespace protrain::inline v0::schedule::detail
