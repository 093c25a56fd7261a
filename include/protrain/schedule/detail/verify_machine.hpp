// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: the symbolic machine that executes a program, and the reader that takes an instruction's
// operands in their documented order.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/detail/verify_content.hpp"
#include "protrain/schedule/detail/verify_spans.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/state_format.hpp"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// Host memory that the caller fills before a step or reads after it. Each is one carried
/// allocation, found by the role of its operands; micro-batches lie in it one after the other.
enum class shared_place : std::uint8_t { batch, scalars, losses, report };

/// Everything known about a step so far.
struct machine {
  program const& p;
  trace::trace const& t;
  chunk::layout const& l;
  update::state_bytes bytes;
  span_index spans;
  std::uint64_t rank;
  contents memory;
  std::vector<std::uint32_t> forwards;    ///< by block: micro-batches done
  std::vector<std::uint32_t> backwards;   ///< by block: micro-batches done
  std::vector<std::uint32_t> updates;     ///< by chunk
  std::vector<std::uint32_t> returned;    ///< by chunk: parts that came back
  std::vector<std::uint32_t> counted;     ///< by chunk: norm_partials
  std::vector<std::uint32_t> losses;      ///< by micro-batch: 1 + operand that the caller reads
  std::vector<std::uint32_t> values;      ///< by chunk: 1 + allocation that is its home
  std::vector<std::uint32_t> states;      ///< by chunk: likewise
  std::vector<std::uint32_t> stores;      ///< by chunk: likewise, 0 where there is none
  std::uint32_t exchanged = 0;            ///< 1 + operand with the losses of all ranks
  std::uint32_t finishes = 0;             ///< norm_finish so far
  std::uint32_t report = 0;               ///< 1 + operand that the caller reads
  std::array<std::uint32_t, 4> shared{};  ///< by shared_place: 1 + allocation

  constexpr machine(program const& what,
                    trace::trace const& facts,
                    chunk::layout const& layout,
                    update::state_bytes sizes,
                    span_index cut,
                    std::uint64_t as)
      : p(what),
        t(facts),
        l(layout),
        bytes(sizes),
        spans(std::move(cut)),
        rank(as),
        memory(p.allocations.size()),
        forwards(t.blocks.size(), 0),
        backwards(t.blocks.size(), 0),
        updates(l.chunks.size(), 0),
        returned(l.chunks.size(), 0),
        counted(l.chunks.size(), 0),
        losses(p.micro_batches, 0),
        values(l.chunks.size(), 0),
        states(l.chunks.size(), 0),
        stores(l.chunks.size(), 0) {}

  constexpr bool trained(chunk_id c) const { return l[c].trainable && l[c].elements > 0; }
  constexpr std::uint64_t contributions(chunk_id c) const {
    return std::uint64_t{spans.spans[c.index()]} * t.job.accumulate;
  }
  constexpr bool several() const { return p.ranks > 1; }
  constexpr bool deferred(chunk_id c) const { return p.deferred[c.index()] != 0; }
  constexpr bool streamed(chunk_id c) const { return p.part_elements[c.index()] != 0; }
  /// Parts of a streamed chunk, and the elements of one.
  constexpr std::uint64_t parts(chunk_id c) const {
    std::uint64_t const each = p.part_elements[c.index()];
    return (shard(c) + each - 1) / each;
  }
  constexpr std::uint64_t elements(chunk_id c, std::uint64_t part) const {
    std::uint64_t const each = p.part_elements[c.index()];
    return part + 1 < parts(c) ? each : shard(c) - part * each;
  }
  /// Before and after the segment, where passes use version 1.
  constexpr std::uint32_t first_version(chunk_id c) const {
    return deferred(c) && resumes(p.part) ? 0 : 1;
  }
  constexpr std::uint32_t last_version(chunk_id c) const {
    return trained(c) && closes(p.part) && !deferred(c) ? 2 : 1;
  }
  /// Contributions to a chunk that are in its store before the segment and after it.
  constexpr std::uint64_t summed_before(chunk_id c) const {
    return std::uint64_t{spans.spans[c.index()]} * p.before;
  }
  constexpr std::uint64_t summed_after(chunk_id c) const {
    return std::uint64_t{spans.spans[c.index()]} * (p.before + p.micro_batches);
  }
  /// Micro-batches whose losses the caller finds.
  constexpr std::uint64_t reported() const {
    return trains(p.part) ? t.job.accumulate : p.micro_batches;
  }

  // Bytes of the whole chunk, and of the rank's shard.
  constexpr std::uint64_t shard(chunk_id c) const { return l[c].elements / p.ranks; }
  constexpr std::uint64_t value_bytes(chunk_id c) const { return l[c].elements * bytes.value; }
  constexpr std::uint64_t value_shard(chunk_id c) const { return shard(c) * bytes.value; }
  constexpr std::uint64_t state_shard(chunk_id c) const { return shard(c) * bytes.state; }
  constexpr std::uint64_t gradient_bytes(chunk_id c) const {
    return l[c].elements * bytes.gradient;
  }
  constexpr std::uint64_t gradient_shard(chunk_id c) const { return shard(c) * bytes.gradient; }
  constexpr std::uint64_t store_shard(chunk_id c) const { return shard(c) * store_bytes(c); }
  constexpr std::uint64_t store_bytes(chunk_id c) const {
    return contributions(c) > 1 ? 4 : bytes.gradient;
  }

  /// The rank's shard of an operand that is `ranks` shards, and all shards of one that is a shard.
  constexpr operand shard_of(operand o) const {
    o.bytes /= p.ranks;
    o.offset += rank * o.bytes;
    return o;
  }
  constexpr operand whole_of(operand o) const {
    o.offset -= rank * o.bytes;
    o.bytes *= p.ranks;
    return o;
  }
  constexpr std::uint64_t loss_bytes() const { return 4 * t.job.micro_batch; }
};

/// Takes the operands of one instruction one after the other and keeps the first objection; after
/// one, nothing has an effect.
class operands {
 public:
  constexpr operands(machine& m, std::uint32_t at)
      : bad(), i(m.p.instructions[at]), m_(m), at_(at), next_(i.first_operand) {}

  verdict bad;
  instruction const& i;

  constexpr bool ok() const { return bad.ok; }
  constexpr void fail(rejection r, char const* what, std::size_t other = verdict::nowhere) {
    bad = ok() ? reject(r, what, at_, other) : bad;
  }
  /// Objects unless `holds`.
  constexpr void require(bool condition, rejection r, char const* what) {
    if (!condition) {
      fail(r, what);
    }
  }

  /// The role of the next operand; false when there is none.
  constexpr bool next_is(role r) const {
    return next_ < i.first_operand + i.operand_count && m_.p.operands[next_].what == r;
  }

  /// The next operand, which must be as described. Null after an objection.
  constexpr operand const* take(role r, access mode, space where, std::uint64_t size) {
    if (!ok()) {
      return nullptr;
    }
    if (!next_is(r)) {
      fail(rejection::malformed, "not the operands of this instruction");
      return nullptr;
    }
    operand const& o = m_.p.operands[next_++];
    bool const same_chunk = r > role::store || !i.chunk.valid() || o.chunk == i.chunk;
    // Micro-batches lie close together where the caller put them: `share` says where.
    bool const packed = where == space::host && (r == role::batch || r == role::loss);
    if (o.mode != mode || o.bytes != size || !same_chunk ||
        (o.offset % address_granule != 0 && !packed) ||
        m_.p.allocations[o.allocation.index()].where != where) {
      fail(rejection::malformed, "an operand of a wrong size, place, chunk or mode", next_ - 1);
      return nullptr;
    }
    return &o;
  }

  /// Reads something that must be exactly `want`. `missing` is the reason if it is another thing,
  /// `stale` if it is at another stage.
  constexpr void read(role r,
                      space where,
                      std::uint64_t size,
                      content const& want,
                      rejection missing = rejection::missing_input,
                      rejection stale = rejection::missing_input) {
    if (operand const* o = take(r, access::read, where, size); o != nullptr) {
      check(*o, want, missing, stale);
    }
  }

  constexpr void write(role r, space where, std::uint64_t size, content const& now) {
    if (operand const* o = take(r, access::write, where, size); o != nullptr) {
      m_.memory.set(*o, now);
    }
  }

  /// Reads `want` and leaves `now`.
  constexpr void change(role r,
                        space where,
                        std::uint64_t size,
                        content const& want,
                        content const& now,
                        rejection missing = rejection::missing_input,
                        rejection stale = rejection::missing_input) {
    if (operand const* o = take(r, access::read_write, where, size); o != nullptr) {
      check(*o, want, missing, stale);
      m_.memory.set(*o, now);
    }
  }

  /// Reads what the caller puts on the host before the step, or what the step put there since.
  constexpr void read_given(role r,
                            shared_place place,
                            std::uint64_t offset,
                            std::uint64_t size,
                            content const& given,
                            content const& want) {
    operand const* o = take(r, access::read, space::host, size);
    if (o == nullptr) {
      return;
    }
    share(place, offset);
    if (m_.memory.untouched(*o)) {
      m_.memory.set(*o, given);
    }
    check(*o, want, rejection::missing_input, rejection::missing_input);
  }

  /// The operand that was taken last lies where the caller looks: in the one allocation of its
  /// kind, at `offset`.
  constexpr void share(shared_place place, std::uint64_t offset) {
    if (!ok()) {
      return;
    }
    operand const& o = m_.p.operands[taken()];
    std::uint32_t const a = o.allocation.value + 1;
    bool fits = m_.p.allocations[o.allocation.index()].carried && o.offset == offset;
    for (std::size_t k = 0; k < m_.shared.size(); ++k) {
      bool const same = m_.shared[k] == a;
      fits = fits && (k == static_cast<std::size_t>(place) ? same || m_.shared[k] == 0 : !same);
    }
    m_.shared[static_cast<std::size_t>(place)] = a;
    require(fits, rejection::malformed, "not where the caller looks");
  }

  constexpr void check(operand const& o, content const& want, rejection missing, rejection stale) {
    content const have = m_.memory.get(o);
    if (!have.same_thing(want)) {
      fail(missing, "an operand doesn't hold what the instruction needs", o.allocation.index());
    } else if (have != want) {
      fail(stale, "an operand is at another stage than needed", o.allocation.index());
    }
  }

  /// No operand is left, and the amount is `amount`.
  constexpr void done(std::uint64_t amount) {
    require(
        next_ == i.first_operand + i.operand_count, rejection::malformed, "an operand too many");
    require(i.amount == amount, rejection::malformed, "a wrong amount");
  }

  /// Position in the operand table of the operand that was taken last.
  constexpr std::uint32_t taken() const { return next_ - 1; }
  constexpr machine& state() { return m_; }

  /// The instruction names an existing block and micro-batch.
  constexpr bool names_pass() {
    require(i.block.index() < m_.t.blocks.size() && i.micro_batch < m_.p.micro_batches,
            rejection::malformed,
            "no such block or micro-batch");
    return ok();
  }
  constexpr bool names_micro_batch() {
    require(i.micro_batch < m_.p.micro_batches, rejection::malformed, "no such micro-batch");
    return ok();
  }
  /// The instruction names a chunk that isn't empty.
  constexpr bool names_chunk() {
    require(i.chunk.index() < m_.l.chunks.size() && m_.l[i.chunk].elements > 0,
            rejection::malformed,
            "no such chunk");
    return ok();
  }
  /// The instruction names a span, its chunk and a micro-batch.
  constexpr bool names_contribution() {
    require(i.span.index() < m_.p.spans.size() && i.micro_batch < m_.p.micro_batches &&
                m_.p.spans[i.span.index()].chunk == i.chunk,
            rejection::malformed,
            "no such contribution");
    return ok();
  }

 private:
  machine& m_;
  std::uint32_t at_;
  std::uint32_t next_;
};

}  // namespace protrain::inline v0::schedule::detail
