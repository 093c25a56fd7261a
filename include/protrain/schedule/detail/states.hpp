// SPDX-License-Identifier: Apache-2.0
#pragma once
// Model states of a segment: gradient slots, and the way from a contribution to the update.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/detail/carried.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/detail/norm.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/schedule/detail/streams.hpp"
#include "protrain/schedule/knobs.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

class states {
 public:
  constexpr states(emitter& to,
                   trace::trace const& t,
                   chunk::layout const& l,
                   knobs const& k,
                   state_rules const& rules,
                   streams& streamed)
      : emit_(to), facts_(t), layout_(l), knobs_(k), rules_(rules), streams_(streamed) {
    slots_.assign(emit_.out.spans.size(), allocation_id{});
  }

  constexpr void set_homes(carried const& homes) { at_ = homes; }

  /// What the step before left over: the updates of deferred chunks, in the order in which their
  /// values are needed. Streamed ones go on beside the passes that follow, if there are any.
  constexpr void resume() {
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      if (rules_.deferred(id)) {
        if (rules_.streamed(id) && !has_scalars_) {
          upload_scalars();
        }
        update(id, {}, 0);
      }
    }
    if (emit_.out.part == segment::flush) {
      streams_.finish_all();
    }
  }

  /// Before the passes of the program that updates.
  constexpr void begin_updates() {
    if (at_.device_norm.valid()) {
      zero(queue_id::compute, role::norm, at_.device_norm, {});
    }
    zero(queue_id::cpu, role::norm, at_.host_norm, {});
    if (!needs_norm(facts_.job)) {
      upload_own_scalars();
    }
  }

  /// Before the backward of `b`: a zeroed slot for each span that starts there.
  constexpr void open(std::uint32_t m, std::uint32_t s, block_id b) {
    if (span(s).blocks.front() != b) {
      return;
    }
    while (!closed_.empty() && closed_.size() + open_ >= knobs_.gradient_slots) {
      complete_reduced(closed_.front().memory);
      streams_.release(closed_.front().memory);
      retire(closed_);
    }
    chunk_id const c = span(s).chunk;
    slots_[s] = emit_.take({.where = space::device,
                            .what = category::gradients,
                            .bytes = rules_.gradient_bytes(c),
                            .chunk = c,
                            .micro_batch = m});
    ++open_;
    zero(queue_id::compute,
         role::gradient,
         slots_[s],
         {.micro_batch = m, .chunk = c, .span = span_id{s}});
  }

  constexpr void use_gradient(std::uint32_t s) {
    emit_.use(role::gradient,
              access::read_write,
              slots_[s],
              {.chunk = span(s).chunk, .span = span_id{s}});
  }

  /// After the backward of `b`: each span that ends there goes its way. What the device does with a
  /// sum over ranks would hold the next pass up until all ranks have it, so it comes behind that pass.
  constexpr void close(std::uint32_t m, std::uint32_t s, block_id b) {
    if (span(s).blocks.back() != b) {
      return;
    }
    chunk_id const c = span(s).chunk;
    instruction const at{.micro_batch = m, .chunk = c, .span = span_id{s}};
    held gradient{.memory = slots_[s]};
    slots_[s] = {};
    --open_;
    reduce(at, gradient);
    closed_.push_back(gradient);
    if (!rules_.gradient_on_device(c)) {
      gradient.memory = offload(at, gradient.memory);
    } else if (rules_.ranks() > 1) {
      reduced_.push_back({.at = at, .gradient = gradient.memory});
      return;
    }
    complete(at, gradient.memory);
  }

  /// After a pass, or the last of a micro-batch: what was reduced beside it.
  constexpr void complete_reduced() {
    while (!reduced_.empty()) {
      complete_first();
    }
  }

  /// After the last backward pass: every slot is given back.
  constexpr void leave() {
    streams_.finish_all();
    retire_all();
  }

  /// Norm, scalars and the updates that waited for them.
  constexpr void end_step() {
    if (rules_.waits()) {
      update_rest(true);  // the first parts go up beside the norm
    }
    finish_norm(emit_, at_, rules_, needs_norm(facts_.job));
    if (needs_norm(facts_.job)) {
      has_scalars_ = false;
      upload_own_scalars();
    }
    if (rules_.waits()) {
      update_rest(false);
    }
    streams_.finish_all();
  }

 private:
  /// A gradient slot and, on several ranks, the staging that its reduction took.
  struct held {
    allocation_id memory{};
    allocation_id staging{};
  };

  constexpr gradient_span const& span(std::size_t s) const { return emit_.out.spans[s]; }

  /// A contribution whose reduction has been issued.
  struct reduced {
    instruction at{};
    allocation_id gradient{};
  };

  constexpr void complete_first() {
    reduced const r = reduced_.front();
    reduced_.erase(reduced_.begin());
    complete(r.at, r.gradient);
  }

  /// Until nothing is left to do with this slot.
  constexpr void complete_reduced(allocation_id gradient) {
    while (std::ranges::find(reduced_, gradient, &reduced::gradient) != reduced_.end()) {
      complete_first();
    }
  }

  /// A contribution that lies where it is read: it is added, and the last one ends its chunk's
  /// gradient.
  constexpr void complete(instruction at, allocation_id gradient) {
    chunk_id const c = at.chunk;
    if (rules_.stored(c) && (rules_.site(c) == update::site::gpu || rules_.contributions(c) > 1)) {
      accumulate(at, gradient);
    }
    bool const last = closes(emit_.out.part) && at.micro_batch + 1 == emit_.out.micro_batches;
    if (last && span(at.span.index()).ordinal + 1 == rules_.spans(c)) {
      finish(c, rules_.stored(c) ? allocation_id{} : gradient);
    }
  }

  /// A part of `n` bytes in memory that holds all ranks' parts one after the other.
  constexpr operand part(chunk_id c, std::uint64_t n, span_id s = {}) const {
    return {.bytes = n, .stride = rules_.ranks() > 1 ? n : 0, .chunk = c, .span = s};
  }
  constexpr chunk_homes const& home(chunk_id c) const { return at_.chunks[c.index()]; }

  constexpr void update_rest(bool streamed) {
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      if (rules_.updated(id) && !rules_.deferred(id) && rules_.streamed(id) == streamed) {
        update(id, {}, 1);
      }
    }
  }

  constexpr void zero(queue_id q, role what, allocation_id id, instruction at) {
    at.op = opcode::zero;
    at.queue = q;
    at.amount = emit_.out.allocations[id.index()].bytes;
    emit_.begin(at);
    emit_.use(what, access::write, id, {.chunk = at.chunk, .span = at.span});
    emit_.end();
  }

  /// Where the device updates something in this step.
  constexpr void upload_own_scalars() {
    bool used = false;
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      bool const device = rules_.site(id) != update::site::cpu;
      used = used || (device && rules_.updated(id) && !rules_.deferred(id));
    }
    if (used && !has_scalars_) {
      upload_scalars();
    }
  }

  constexpr void upload_scalars() {
    emit_.begin({.op = opcode::scalars_upload, .queue = queue_id::h2d, .amount = scalars_bytes});
    emit_.use(role::scalars, access::read, at_.host_scalars);
    emit_.use(role::scalars, access::write, at_.device_scalars);
    emit_.end();
    has_scalars_ = true;
  }

  /// Over ranks: this rank's shard holds the sum afterwards.
  constexpr void reduce(instruction at, held& gradient) {
    at.op = opcode::reduce;
    at.queue = queue_id::reduce;
    at.amount = rules_.gradient_bytes(at.chunk);
    allocation_id staging = at_.staging;
    if (rules_.ranks() > 1 && layout_[at.chunk].oversize) {
      staging = gradient.staging = emit_.take({.where = space::device,
                                               .what = category::staging,
                                               .bytes = at.amount,
                                               .chunk = at.chunk,
                                               .micro_batch = at.micro_batch});
    }
    emit_.begin(at);
    emit_.use(
        role::gradient, access::read_write, gradient.memory, {.chunk = at.chunk, .span = at.span});
    emit_.use(role::staging, access::write, staging, {.bytes = at.amount, .chunk = at.chunk});
    emit_.end();
  }

  /// Device to host: into the store when this is the only contribution and the update waits, else
  /// into a slot. Returns what the CPU reads.
  constexpr allocation_id offload(instruction at, allocation_id gradient) {
    chunk_id const c = at.chunk;
    std::uint64_t const size = rules_.gradient_shard(c);
    bool const direct = rules_.stored(c) && rules_.contributions(c) == 1;
    allocation_id to = home(c).store;
    if (!direct) {
      while (host_closed_.size() >= knobs_.gradient_slots) {
        retire(host_closed_);
      }
      to = emit_.take({.where = space::host,
                       .what = category::gradients,
                       .bytes = size,
                       .chunk = c,
                       .micro_batch = at.micro_batch});
      host_closed_.push_back({.memory = to});
    }
    at.op = opcode::offload;
    at.queue = queue_id::d2h;
    at.amount = size;
    emit_.begin(at);
    emit_.use(role::gradient, access::read, gradient, part(c, size, at.span));
    emit_.use(
        direct ? role::store : role::gradient, access::write, to, {.chunk = c, .span = at.span});
    emit_.end();
    return to;
  }

  /// The reduced contribution: a shard of the device's slot, or what was offloaded.
  constexpr void use_contribution(chunk_id c, allocation_id slot, span_id s = {}) {
    bool const device = emit_.out.allocations[slot.index()].where == space::device;
    operand const whole{.chunk = c, .span = s};
    emit_.use(
        role::gradient, access::read, slot, device ? part(c, rules_.gradient_shard(c), s) : whole);
  }

  constexpr void accumulate(instruction at, allocation_id gradient) {
    at.op = opcode::accumulate;
    at.queue = rules_.queue(at.chunk);
    at.amount = rules_.shard(at.chunk);
    emit_.begin(at);
    use_contribution(at.chunk, gradient, at.span);
    emit_.use(role::store,
              access::read_write,
              home(at.chunk).store,
              {.chunk = at.chunk, .span = at.span});
    emit_.end();
  }

  /// The chunk's gradient: its store, or the slot itself when there is no store.
  constexpr void use_final_gradient(chunk_id c, allocation_id slot) {
    if (home(c).store.valid()) {
      emit_.use(role::store, access::read, home(c).store, {.chunk = c});
    } else {
      use_contribution(c, slot);
    }
  }

  /// After a chunk's last contribution.
  constexpr void finish(chunk_id c, allocation_id slot) {
    emit_.begin({.op = opcode::norm_partial,
                 .queue = rules_.queue(c),
                 .chunk = c,
                 .amount = rules_.shard(c)});
    use_final_gradient(c, slot);
    emit_.use(role::norm,
              access::read_write,
              rules_.gradient_on_device(c) ? at_.device_norm : at_.host_norm);
    emit_.end();
    if (!rules_.waits() && !rules_.deferred(c)) {
      update(c, slot, 1);
    }
  }

  constexpr void update(chunk_id c, allocation_id slot, std::uint32_t version) {
    if (rules_.streamed(c)) {
      streams_.add(c, slot, version);
      return;
    }
    bool const device = rules_.site(c) == update::site::gpu;
    emit_.begin({.op = opcode::update,
                 .queue = rules_.queue(c),
                 .chunk = c,
                 .version = version,
                 .amount = rules_.shard(c)});
    operand const all{.chunk = c};
    emit_.use(role::value,
              access::read_write,
              home(c).value,
              device ? part(c, rules_.value_shard(c)) : all);
    emit_.use(role::state, access::read_write, home(c).state, all);
    use_final_gradient(c, slot);
    emit_.use(role::scalars, access::read, device ? at_.device_scalars : at_.host_scalars);
    emit_.end();
    if (device && rules_.ranks() > 1) {
      gather(c, version + 1);
    }
  }

  /// Every rank updated its shard of a value that all of them hold.
  constexpr void gather(chunk_id c, std::uint32_t version) {
    emit_.begin({.op = opcode::gather,
                 .queue = queue_id::gather,
                 .chunk = c,
                 .version = version,
                 .amount = rules_.value_bytes(c)});
    emit_.use(role::value, access::read_write, home(c).value, {.chunk = c});
    emit_.end();
  }

  /// Gives the oldest slot of a list back.
  constexpr void retire(std::vector<held>& list) {
    emit_.give(list.front().memory);
    emit_.give(list.front().staging);
    list.erase(list.begin());
  }

  constexpr void retire_all() {
    for (std::vector<held>* list : {&closed_, &host_closed_}) {
      while (!list->empty()) {
        retire(*list);
      }
    }
  }

  emitter& emit_;
  trace::trace const& facts_;
  chunk::layout const& layout_;
  knobs const& knobs_;
  state_rules const& rules_;
  streams& streams_;
  carried at_{};
  std::vector<allocation_id> slots_;  ///< by span: the open device slot
  std::vector<held> closed_;          ///< device slots whose backward passes are over
  std::vector<held> host_closed_;     ///< host slots in flight
  std::vector<reduced> reduced_;      ///< in `closed_`, not completed yet
  std::uint32_t open_ = 0;
  bool has_scalars_ = false;  ///< on the device, of this step or of the one before
};

}  // namespace protrain::inline v0::schedule::detail
