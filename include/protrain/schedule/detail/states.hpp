// SPDX-License-Identifier: Apache-2.0
#pragma once
// Model states of a step: where they live, gradient slots, and the way from a contribution to the
// update.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/update/state_format.hpp"

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
                   update::state_bytes const& b,
                   std::vector<gradient_span> spans)
      : emit_(to), facts_(t), layout_(l), knobs_(k), bytes_(b), chunks_(l.chunks.size(), homes{}) {
    for (std::size_t s = 0; s < spans.size(); ++s) {
      ++chunks_[spans[s].chunk.index()].spans;
      slots_.push_back({});
    }
    emit_.out.spans = std::move(spans);
  }

  constexpr std::uint64_t value_bytes(chunk_id c) const {
    return checked_mul(layout_[c].elements, bytes_.value);
  }
  constexpr allocation_id host_batch() const { return host_batch_; }
  constexpr allocation_id host_loss() const { return host_loss_; }

  /// Takes everything that is carried from step to step, largest lifetimes first: values, state,
  /// stores, parameter buffers, cells; then the same on the host.
  constexpr void take_carried(auto& values) {
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      chunk_id const id = make_id<chunk_id>(c);
      chunks_[c].value = take(id, category::parameters, bytes_.value);
      values.set_home(id, chunks_[c].value);
    }
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      if (updated(make_id<chunk_id>(c))) {
        chunks_[c].state = take(make_id<chunk_id>(c), category::optimizer, bytes_.state);
      }
    }
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      chunk_id const id = make_id<chunk_id>(c);
      if (updated(id) && (contributions(id) > 1 || waits())) {
        std::uint64_t const each = contributions(id) > 1 ? 4 : bytes_.gradient;
        chunks_[c].store = take(id, category::gradients, each);
      }
    }
    take_buffers(values);
    take_cells();
  }

  /// Spans that block `b` contributes to, in order of their chunks.
  constexpr std::vector<std::uint32_t> spans_of(block_id b) const {
    std::vector<std::uint32_t> out;
    for (std::size_t s = 0; s < slots_.size(); ++s) {
      auto const& blocks = span(s).blocks;
      if (std::find(blocks.begin(), blocks.end(), b) != blocks.end()) {
        out.push_back(static_cast<std::uint32_t>(s));
      }
    }
    return out;
  }

  constexpr void begin_step() {
    if (device_norm_.valid()) {
      zero(queue_id::compute, role::norm, device_norm_, {});
    }
    zero(queue_id::cpu, role::norm, host_norm_, {});
    if (!needs_norm(facts_.job)) {
      upload_scalars();
    }
  }

  /// Before the backward of `b`: a zeroed slot for each span that starts there.
  constexpr void open(std::uint32_t m, std::uint32_t s, block_id b) {
    if (span(s).blocks.front() != b) {
      return;
    }
    while (closed_.size() > 0 && closed_.size() + open_ >= knobs_.gradient_slots) {
      retire(closed_);
    }
    chunk_id const c = span(s).chunk;
    slots_[s] = emit_.take({.where = space::device,
                            .what = category::gradients,
                            .bytes = checked_mul(layout_[c].elements, bytes_.gradient),
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

  /// After the backward of `b`: each span that ends there goes its way.
  constexpr void close(std::uint32_t m, std::uint32_t s, block_id b) {
    if (span(s).blocks.back() != b) {
      return;
    }
    chunk_id const c = span(s).chunk;
    instruction at{.op = opcode::reduce,
                   .queue = queue_id::reduce,
                   .micro_batch = m,
                   .chunk = c,
                   .span = span_id{s},
                   .amount = checked_mul(layout_[c].elements, bytes_.gradient)};
    emit_.begin(at);
    use_gradient(s);
    emit_.end();
    allocation_id gradient = slots_[s];
    slots_[s] = {};
    --open_;
    if (site(c) == update::site::cpu) {
      gradient = offload(at, gradient);
    } else {
      closed_.push_back(gradient);
    }
    if (chunks_[c.index()].store.valid() &&
        (site(c) == update::site::gpu || contributions(c) > 1)) {
      accumulate(at, gradient);
    }
    bool const last =
        m + 1 == facts_.job.accumulate && span(s).ordinal + 1 == chunks_[c.index()].spans;
    if (last) {
      finish(c, chunks_[c.index()].store.valid() ? allocation_id{} : gradient);
    }
  }

  /// Norm, scalars and the updates that waited for them.
  constexpr void end_step() {
    retire_all();
    finish_norm();
    if (needs_norm(facts_.job)) {
      upload_scalars();
    }
    if (waits()) {
      for (std::size_t c = 0; c < chunks_.size(); ++c) {
        if (updated(make_id<chunk_id>(c))) {
          update(make_id<chunk_id>(c), {});
        }
      }
    }
  }

 private:
  struct homes {
    allocation_id value{};
    allocation_id state{};
    allocation_id store{};
    std::uint32_t spans = 0;
  };

  constexpr gradient_span const& span(std::size_t s) const { return emit_.out.spans[s]; }
  constexpr update::site site(chunk_id c) const { return knobs_.sites[c.index()]; }
  constexpr bool waits() const { return knobs_.time == update::timing::after_backward; }
  /// True for a chunk that trains: a trainable tensor is used by some block.
  constexpr bool updated(chunk_id c) const { return chunks_[c.index()].spans > 0; }
  constexpr std::uint64_t contributions(chunk_id c) const {
    return checked_mul(chunks_[c.index()].spans, facts_.job.accumulate);
  }
  constexpr queue_id queue_of(chunk_id c) const {
    return site(c) == update::site::gpu ? queue_id::compute : queue_id::cpu;
  }

  constexpr allocation_id take(chunk_id c, category what, std::uint64_t bytes_each) {
    space const where = knobs_.persistent[c.index()] != 0 ? space::device : space::host;
    return emit_.take({.where = where,
                       .what = what,
                       .bytes = checked_mul(layout_[c].elements, bytes_each),
                       .carried = true,
                       .chunk = c});
  }

  /// Slots as large as the largest regular chunk that moves.
  constexpr void take_buffers(auto& values) {
    std::uint64_t largest = 0;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      bool const regular = knobs_.persistent[c] == 0 && !layout_.chunks[c].oversize;
      largest = regular ? std::max(largest, layout_.chunks[c].elements) : largest;
    }
    for (std::uint32_t i = 0; i < knobs_.buffers && largest > 0; ++i) {
      values.add_buffer(emit_.take({.where = space::device,
                                    .what = category::parameter_buffers,
                                    .bytes = checked_mul(largest, bytes_.value),
                                    .carried = true}));
    }
  }

  constexpr allocation_id cell(space where, std::uint64_t size, category what = category::staging) {
    return emit_.take({.where = where, .what = what, .bytes = size, .carried = true});
  }

  constexpr void take_cells() {
    bool gpu = false;
    for (std::size_t c = 0; c < chunks_.size(); ++c) {
      chunk_id const id = make_id<chunk_id>(c);
      gpu = gpu || (updated(id) && site(id) == update::site::gpu);
    }
    if (gpu) {
      device_norm_ = cell(space::device, norm_cell_bytes);
      device_scalars_ = cell(space::device, scalars_bytes);
      norm_copy_ = cell(space::host, norm_cell_bytes);
    }
    host_norm_ = cell(space::host, norm_cell_bytes);
    host_scalars_ = cell(space::host, scalars_bytes);
    report_ = cell(space::host, report_bytes);
    model::job const& j = facts_.job;
    host_batch_ = cell(space::host, checked_mul(facts_.batch.value, j.accumulate), category::batch);
    host_loss_ = cell(
        space::host, checked_mul(checked_mul(j.micro_batch, 4), j.accumulate), category::batch);
  }

  constexpr void zero(queue_id q, role what, allocation_id id, instruction at) {
    at.op = opcode::zero;
    at.queue = q;
    at.amount = emit_.out.allocations[id.index()].bytes;
    emit_.begin(at);
    emit_.use(what, access::write, id, {.chunk = at.chunk, .span = at.span});
    emit_.end();
  }

  constexpr void upload_scalars() {
    if (!device_scalars_.valid()) {
      return;
    }
    emit_.begin({.op = opcode::scalars_upload, .queue = queue_id::h2d, .amount = scalars_bytes});
    emit_.use(role::scalars, access::read, host_scalars_);
    emit_.use(role::scalars, access::write, device_scalars_);
    emit_.end();
  }

  /// Device to host: into the store when this is the only contribution and the update waits, else
  /// into a slot. Returns what the CPU reads.
  constexpr allocation_id offload(instruction at, allocation_id gradient) {
    chunk_id const c = at.chunk;
    bool const direct = chunks_[c.index()].store.valid() && contributions(c) == 1;
    allocation_id to = chunks_[c.index()].store;
    if (!direct) {
      while (host_closed_.size() >= knobs_.gradient_slots) {
        retire(host_closed_);
      }
      to = emit_.take({.where = space::host,
                       .what = category::gradients,
                       .bytes = at.amount,
                       .chunk = c,
                       .micro_batch = at.micro_batch});
      host_closed_.push_back(to);
    }
    at.op = opcode::offload;
    at.queue = queue_id::d2h;
    emit_.begin(at);
    emit_.use(role::gradient, access::read, gradient, {.chunk = c, .span = at.span});
    emit_.use(
        direct ? role::store : role::gradient, access::write, to, {.chunk = c, .span = at.span});
    emit_.end();
    closed_.push_back(gradient);
    return to;
  }

  constexpr void accumulate(instruction at, allocation_id gradient) {
    at.op = opcode::accumulate;
    at.queue = queue_of(at.chunk);
    at.amount = layout_[at.chunk].elements;
    emit_.begin(at);
    emit_.use(role::gradient, access::read, gradient, {.chunk = at.chunk, .span = at.span});
    emit_.use(role::store,
              access::read_write,
              chunks_[at.chunk.index()].store,
              {.chunk = at.chunk, .span = at.span});
    emit_.end();
  }

  /// The chunk's gradient: its store, or the slot itself when there is no store.
  constexpr void use_final_gradient(chunk_id c, allocation_id slot) {
    allocation_id const store = chunks_[c.index()].store;
    emit_.use(store.valid() ? role::store : role::gradient,
              access::read,
              store.valid() ? store : slot,
              {.chunk = c});
  }

  /// After a chunk's last contribution.
  constexpr void finish(chunk_id c, allocation_id slot) {
    emit_.begin({.op = opcode::norm_partial,
                 .queue = queue_of(c),
                 .chunk = c,
                 .amount = layout_[c].elements});
    use_final_gradient(c, slot);
    emit_.use(
        role::norm, access::read_write, site(c) == update::site::gpu ? device_norm_ : host_norm_);
    emit_.end();
    if (!waits()) {
      update(c, slot);
    }
  }

  constexpr void update(chunk_id c, allocation_id slot) {
    emit_.begin(
        {.op = opcode::update, .queue = queue_of(c), .chunk = c, .amount = layout_[c].elements});
    emit_.use(role::value, access::read_write, chunks_[c.index()].value, {.chunk = c});
    emit_.use(role::state, access::read_write, chunks_[c.index()].state, {.chunk = c});
    use_final_gradient(c, slot);
    emit_.use(role::scalars,
              access::read,
              site(c) == update::site::gpu ? device_scalars_ : host_scalars_);
    emit_.end();
  }

  constexpr void finish_norm() {
    if (device_norm_.valid()) {
      emit_.begin({.op = opcode::norm_read, .queue = queue_id::d2h, .amount = norm_cell_bytes});
      emit_.use(role::norm, access::read, device_norm_);
      emit_.use(role::norm_copy, access::write, norm_copy_);
      emit_.end();
    }
    emit_.begin({.op = opcode::norm_finish, .queue = queue_id::cpu});
    emit_.use(role::norm, access::read, host_norm_);
    emit_.use(role::norm_copy, access::read, norm_copy_);
    emit_.use(role::report, access::write, report_);
    if (needs_norm(facts_.job)) {
      emit_.use(role::scalars, access::write, host_scalars_);
    }
    emit_.end();
  }

  /// Gives the oldest slot of a list back.
  constexpr void retire(std::vector<allocation_id>& list) {
    emit_.give(list.front());
    list.erase(list.begin());
  }

  constexpr void retire_all() {
    for (std::vector<allocation_id>* list : {&closed_, &host_closed_}) {
      while (!list->empty()) {
        retire(*list);
      }
    }
  }

  emitter& emit_;
  trace::trace const& facts_;
  chunk::layout const& layout_;
  knobs const& knobs_;
  update::state_bytes bytes_;
  std::vector<homes> chunks_;
  std::vector<allocation_id> slots_;        ///< by span: the open device slot
  std::vector<allocation_id> closed_;       ///< device slots whose backward passes are over
  std::vector<allocation_id> host_closed_;  ///< host slots in flight
  std::uint32_t open_ = 0;
  allocation_id device_norm_{};
  allocation_id device_scalars_{};
  allocation_id norm_copy_{};
  allocation_id host_norm_{};
  allocation_id host_scalars_{};
  allocation_id report_{};
  allocation_id host_batch_{};
  allocation_id host_loss_{};
};

}  // namespace protrain::inline v0::schedule::detail
