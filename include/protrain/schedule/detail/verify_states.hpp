// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: meaning of the instructions between a contribution and the update.

#include "protrain/schedule/detail/verify_machine.hpp"
#include "protrain/schedule/detail/verify_passes.hpp"

#include <cstdint>

namespace protrain::inline v0::schedule::detail {

constexpr space space_of(queue_id q) noexcept {
  return q == queue_id::cpu ? space::host : space::device;
}

/// The contribution that the instruction names, complete.
constexpr content contribution_of(operands& o, bool reduced) {
  return {.what = holds::contribution,
          .reduced = reduced,
          .of = o.i.span.value,
          .micro_batch = o.i.micro_batch,
          .count = static_cast<std::uint32_t>(o.state().p.spans[o.i.span.index()].blocks.size())};
}

constexpr void run_zero(operands& o) {
  machine const& m = o.state();
  space const where = space_of(o.i.queue);
  std::uint64_t size = 0;
  if (o.next_is(role::gradient)) {
    if (o.names_contribution()) {
      size = m.gradient_bytes(o.i.chunk);
      content empty = contribution_of(o, false);
      empty.count = 0;
      o.write(role::gradient, where, size, empty);
    }
  } else if (o.next_is(role::loss)) {
    o.require(where == space::device, rejection::wrong_queue, "losses are made on the device");
    if (o.names_micro_batch()) {
      size = m.loss_bytes();
      o.write(
          role::loss, space::device, size, {.what = holds::loss, .micro_batch = o.i.micro_batch});
    }
  } else {
    size = norm_cell_bytes;
    o.write(role::norm, where, size, {.what = holds::norm});
  }
  o.done(size);
}

constexpr void run_reduce(operands& o) {
  machine& m = o.state();
  if (!o.names_contribution()) {
    return;
  }
  std::uint64_t const size = m.gradient_bytes(o.i.chunk);
  operand const* g = o.take(role::gradient, access::read_write, space::device, size);
  if (g == nullptr) {
    return;
  }
  content const have = m.memory.get(m.shard_of(*g));
  o.require(!have.same_thing(contribution_of(o, true)) || !have.reduced,
            rejection::double_reduce,
            "a contribution reduced twice");
  o.check(
      *g, contribution_of(o, false), rejection::wrong_contribution, rejection::wrong_contribution);
  if (m.several()) {
    m.memory.set(*g, {});
    o.write(role::staging, space::device, size, {});
  }
  m.memory.set(m.shard_of(*g), contribution_of(o, true));
  o.done(size);
}

/// What a slot holds that was not reduced, seen from the rank's shard of it.
constexpr content unreduced(machine const& m, operand const& shard, space where) {
  bool const slot = where == space::device && shard.offset >= m.rank * shard.bytes;
  return m.memory.get(slot ? m.whole_of(shard) : shard);
}

/// Reads the rank's shard of the contribution that the instruction names, which is complete and
/// reduced.
constexpr void read_contribution(operands& o, space where) {
  machine const& m = o.state();
  operand const* g = o.take(role::gradient, access::read, where, m.gradient_shard(o.i.chunk));
  if (g == nullptr) {
    return;
  }
  o.require(unreduced(m, *g, where) != contribution_of(o, false),
            rejection::missing_reduce,
            "a contribution that isn't reduced");
  o.check(
      *g, contribution_of(o, true), rejection::wrong_contribution, rejection::wrong_contribution);
}

/// To a slot on the host; straight into the store when there is one contribution only.
constexpr void run_offload(operands& o) {
  machine const& m = o.state();
  if (!o.names_contribution()) {
    return;
  }
  std::uint64_t const size = m.gradient_shard(o.i.chunk);
  read_contribution(o, space::device);
  if (o.next_is(role::store)) {
    o.require(m.contributions(o.i.chunk) == 1,
              rejection::missing_accumulate,
              "a contribution written over a sum");
    o.write(
        role::store, space::host, size, {.what = holds::store, .of = o.i.chunk.value, .count = 1});
  } else {
    o.write(role::gradient, space::host, size, contribution_of(o, true));
  }
  o.done(size);
}

/// Adds the next contribution: micro-batches ascending, spans in backward order within each.
constexpr void run_accumulate(operands& o) {
  machine& m = o.state();
  if (!o.names_contribution()) {
    return;
  }
  chunk_id const c = o.i.chunk;
  space const where = space_of(o.i.queue);
  read_contribution(o, where);
  operand const* s = o.take(role::store, access::read_write, where, m.store_shard(c));
  if (s == nullptr) {
    return;
  }
  std::uint32_t const turn = (m.p.before + o.i.micro_batch) * m.spans.spans[c.index()] +
                             m.p.spans[o.i.span.index()].ordinal;
  content sum{.what = holds::store, .of = c.value};
  content const have = m.memory.get(*s);
  sum.count = have.same_thing(sum) ? have.count : 0;
  o.require(turn >= sum.count, rejection::double_accumulate, "a contribution added twice");
  o.require(turn <= sum.count, rejection::missing_accumulate, "a contribution is left out");
  ++sum.count;
  m.memory.set(*s, sum);
  o.done(m.shard(c));
}

/// A contribution that is said to be the chunk's whole gradient.
constexpr void check_total(operands& o, content const& have) {
  machine const& m = o.state();
  chunk_id const c = o.i.chunk;
  o.require(have.what == holds::contribution && m.p.spans[have.of].chunk == c &&
                have.count == m.p.spans[have.of].blocks.size(),
            rejection::wrong_contribution,
            "not this chunk's contribution");
  o.require(have.reduced, rejection::missing_reduce, "a contribution that isn't reduced");
  o.require(m.contributions(c) == 1, rejection::missing_accumulate, "one of several contributions");
}

/// The chunk's whole gradient: its store with all contributions, or the only contribution itself.
/// `before`: of the step that left an update over.
constexpr void read_total(operands& o, space where, bool before = false) {
  machine const& m = o.state();
  chunk_id const c = o.i.chunk;
  std::uint64_t const all = m.contributions(c);
  if (o.next_is(role::store)) {
    o.read(role::store,
           where,
           m.store_shard(c),
           {.what = holds::store,
            .of = c.value,
            .micro_batch = before ? 1U : 0U,
            .count = static_cast<std::uint32_t>(all)},
           rejection::missing_accumulate,
           rejection::missing_accumulate);
    return;
  }
  operand const* g = o.take(role::gradient, access::read, where, m.gradient_shard(c));
  if (g == nullptr) {
    return;
  }
  content have = m.memory.get(*g);
  have = have.what == holds::nothing ? unreduced(m, *g, where) : have;
  check_total(o, have);
}

constexpr void run_norm_partial(operands& o) {
  machine& m = o.state();
  if (!o.names_chunk()) {
    return;
  }
  space const where = space_of(o.i.queue);
  o.require(m.trained(o.i.chunk), rejection::norm, "frozen parameters don't count");
  o.require(m.counted[o.i.chunk.index()]++ == 0, rejection::norm, "a chunk counts twice");
  read_total(o, where);
  operand const* cell = o.take(role::norm, access::read_write, where, norm_cell_bytes);
  if (cell == nullptr) {
    return;
  }
  content sum = m.memory.get(*cell);
  o.require(sum.what == holds::norm, rejection::norm, "a norm that doesn't start at zero");
  ++sum.count;
  m.memory.set(*cell, sum);
  o.done(m.shard(o.i.chunk));
}

constexpr void run_norm_read(operands& o) {
  machine const& m = o.state();
  operand const* from = o.take(role::norm, access::read, space::device, norm_cell_bytes);
  if (from == nullptr) {
    return;
  }
  content sum = m.memory.get(*from);
  o.require(sum.what == holds::norm, rejection::norm, "a norm that doesn't start at zero");
  sum.what = holds::norm_copy;
  o.write(role::norm_copy, space::host, norm_cell_bytes, sum);
  o.done(norm_cell_bytes);
}

/// Reads the rank's sums and answers how many chunks are in them.
constexpr std::uint32_t read_own_norm(operands& o) {
  machine const& m = o.state();
  operand const* host = o.take(role::norm, access::read, space::host, norm_cell_bytes);
  if (host == nullptr) {
    return 0;
  }
  content const mine = m.memory.get(*host);
  o.require(mine.what == holds::norm, rejection::norm, "a norm that doesn't start at zero");
  std::uint32_t sum = mine.count;
  if (o.next_is(role::norm_copy)) {
    operand const* copy = o.take(role::norm_copy, access::read, space::host, norm_cell_bytes);
    content const other = copy == nullptr ? content{} : m.memory.get(*copy);
    o.require(other.what == holds::norm_copy, rejection::norm, "the device's norm isn't there");
    sum += other.count;
  }
  return sum;
}

constexpr void run_norm_exchange(operands& o) {
  machine const& m = o.state();
  o.require(m.several(), rejection::malformed, "an exchange in a program of one rank");
  std::uint32_t const sum = read_own_norm(o);
  o.write(
      role::norms, space::host, norm_cell_bytes * m.p.ranks, {.what = holds::norms, .count = sum});
  o.done(norm_cell_bytes);
}

/// Every trained chunk counts once in one cell, so the sums are complete exactly when their counts
/// add up.
constexpr void run_norm_finish(operands& o) {
  machine& m = o.state();
  std::uint32_t trained = 0;
  for (std::size_t c = 0; c < m.l.chunks.size(); ++c) {
    trained += m.trained(make_id<chunk_id>(c)) ? 1U : 0U;
  }
  std::uint32_t sum = 0;
  if (m.several()) {
    operand const* all =
        o.take(role::norms, access::read, space::host, norm_cell_bytes * m.p.ranks);
    content const have = all == nullptr ? content{} : m.memory.get(*all);
    o.require(have.what == holds::norms, rejection::norm, "the ranks' norms aren't there");
    sum = have.count;
  } else {
    sum = read_own_norm(o);
  }
  o.require(sum == trained, rejection::norm, "the norm misses a chunk");
  o.require(m.finishes++ == 0, rejection::norm, "the norm is finished twice");
  o.write(role::report, space::host, report_bytes, {.what = holds::report});
  o.share(shared_place::report, 0);
  m.report = o.taken() + 1;
  if (needs_norm(m.t.job)) {
    o.write(role::scalars, space::host, scalars_bytes, {.what = holds::scalars, .count = 1});
    o.share(shared_place::scalars, 0);
  }
  o.done(0);
}

/// Scalars of a job that needs the norm are final, those of another as the caller gave them: the
/// same in every step. `before`: of the step that left an update over.
constexpr content scalars_of(machine const& m, bool before = false) {
  bool const norm = needs_norm(m.t.job);
  return {.what = holds::scalars, .micro_batch = norm && before ? 1U : 0U, .count = norm ? 1U : 0U};
}

constexpr void read_host_scalars(operands& o, bool before = false) {
  content const given = before ? scalars_of(o.state(), true) : content{.what = holds::scalars};
  o.read_given(
      role::scalars, shared_place::scalars, 0, scalars_bytes, given, scalars_of(o.state(), before));
}

/// Before the norm is finished, a segment that resumes finds the scalars of the step before.
constexpr void run_scalars_upload(operands& o) {
  machine const& m = o.state();
  bool const before = resumes(m.p.part) && m.finishes == 0;
  read_host_scalars(o, before);
  o.write(role::scalars, space::device, scalars_bytes, scalars_of(m, before));
  o.done(scalars_bytes);
}

/// What every update must obey: of a trained chunk, in its own step or, deferred, in the next.
/// Answers whether it was left over.
constexpr bool check_update(operands& o) {
  machine const& m = o.state();
  bool const before = m.deferred(o.i.chunk);
  o.require(m.trained(o.i.chunk), rejection::frozen_update, "frozen parameters don't change");
  o.require(!before || resumes(m.p.part),
            rejection::wrong_version,
            "an update that belongs to the next step");
  o.require(
      before || closes(m.p.part), rejection::double_update, "an update before the last gradient");
  return before;
}

constexpr void run_update(operands& o) {
  machine& m = o.state();
  if (!o.names_chunk()) {
    return;
  }
  chunk_id const c = o.i.chunk;
  space const where = space_of(o.i.queue);
  o.require(!m.streamed(c), rejection::malformed, "a streamed chunk is updated in parts");
  o.require(m.updates[c.index()]++ == 0, rejection::double_update, "a chunk is updated twice");
  bool const before = check_update(o);
  o.require(!before || where == space::host,
            rejection::wrong_version,
            "an update that belongs to the next step");
  o.require(o.i.version == (before ? 0U : 1U),
            rejection::wrong_version,
            "an update of another step's version");
  content state = value_of(c, o.i.version);
  content state_after = value_of(c, o.i.version + 1);
  bool const replicated = m.several() && where == space::device;
  operand const* value = o.take(role::value, access::read_write, where, m.value_shard(c));
  if (value == nullptr) {
    return;
  }
  o.check(replicated ? m.whole_of(*value) : *value,
          state,
          rejection::not_resident,
          rejection::wrong_version);
  m.memory.set(*value, state_after);
  state.what = holds::state;
  state_after.what = holds::state;
  o.change(role::state,
           where,
           m.state_shard(c),
           state,
           state_after,
           rejection::not_resident,
           rejection::wrong_version);
  read_total(o, where, before);
  if (before && o.ok()) {
    m.memory.set(m.p.operands[o.taken()], {});  // used up: the store begins anew
  }
  if (where == space::host) {
    read_host_scalars(o, before);
  } else {
    o.read(role::scalars, where, scalars_bytes, scalars_of(m));
  }
  o.done(m.shard(c));
}

}  // namespace protrain::inline v0::schedule::detail
