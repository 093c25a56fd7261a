// SPDX-License-Identifier: Apache-2.0
#pragma once
// Walks a segment in program order and emits its instructions: forward, backward, gradients.

#include "protrain/schedule/detail/carried.hpp"
#include "protrain/schedule/detail/residency.hpp"
#include "protrain/schedule/detail/start.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/schedule/detail/states.hpp"
#include "protrain/schedule/detail/streams.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/spans.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

template <chunk::eviction_policy Eviction>
class compiler {
 public:
  constexpr compiler(prepared const& known,
                     trace::trace const& t,
                     chunk::layout const& l,
                     knobs const& k,
                     update::state_bytes const& b,
                     Eviction const& policy,
                     segment part)
      : emit_(start(known, t, k, part)),
        known_(known),
        facts_(t),
        layout_(l),
        knobs_(k),
        part_(part),
        stages_{.blocks = static_cast<std::uint32_t>(t.blocks.size()),
                .micro_batches = emit_.out.micro_batches,
                .backward_too = trains(part)},
        rules_(t, l, k, b, emit_.out.spans),
        streams_(emit_, rules_),
        values_(emit_, l, stages_, k.persistent, rules_, policy, streams_),
        states_(emit_, t, l, k, rules_, streams_),
        output_(t.blocks.size(), allocation_id{}),
        output_gradient_(t.blocks.size(), allocation_id{}),
        saved_(t.blocks.size(), allocation_id{}),
        swapped_(t.blocks.size(), allocation_id{}) {
    emit_.out.deferred = rules_.all_deferred();
    emit_.out.part_elements = rules_.all_parts();
    at_ = carried_memory(emit_, t, l, k, rules_).run(values_);
    states_.set_homes(at_);
    streams_.set_homes(at_);
    losses_.reserve(stages_.micro_batches);
    for (std::uint32_t m = 0; m < stages_.micro_batches; ++m) {
      losses_.push_back(emit_.take({.where = space::device,
                                    .what = category::batch,
                                    .bytes = checked_mul(t.job.micro_batch, 4),
                                    .micro_batch = m}));
    }
  }

  constexpr program run() {
    if (resumes(part_)) {
      states_.resume();
    }
    if (closes(part_)) {
      states_.begin_updates();
    }
    if (part_ != segment::flush) {
      run_passes();
    }
    if (trains(part_)) {
      states_.leave();
    }
    if (closes(part_)) {
      states_.end_step();
    }
    return emit_.finish();
  }

 private:
  constexpr void run_passes() {
    for (allocation_id const loss : losses_) {
      std::uint32_t const m = emit_.out.allocations[loss.index()].micro_batch;
      emit_.begin({.op = opcode::zero, .micro_batch = m, .amount = size_of(loss)});
      emit_.use(role::loss, access::write, loss);
      emit_.end();
    }
    load_batch(0);
    for (std::uint32_t m = 0; m < stages_.micro_batches; ++m) {
      batch_ = next_batch_;
      next_batch_ = {};
      for (std::uint32_t b = 0; b < stages_.blocks; ++b) {
        forward(m, make_id<block_id>(b));
      }
      read_loss(m);
      if (m + 1 < stages_.micro_batches) {
        load_batch(m + 1);
      } else if (!trains(part_) || closes(part_)) {
        exchange_losses();
      }
      for (std::uint32_t b = stages_.blocks; b-- > 0 && trains(part_);) {
        backward(m, make_id<block_id>(b));
      }
      states_.complete_reduced();
      emit_.give(leaving_);
      emit_.give(batch_);
    }
    values_.leave();
  }

  constexpr std::uint64_t size_of(allocation_id id) const {
    return emit_.out.allocations[id.index()].bytes;
  }
  constexpr activation::strategy strategy(block_id b) const { return knobs_.strategies[b.index()]; }
  /// An evaluation drops everything anyway.
  constexpr std::uint32_t level(block_id b) const {
    return trains(part_) && !knobs_.levels.empty() ? knobs_.levels[b.index()] : 0U;
  }
  /// Null at level 0.
  constexpr trace::save_level const* level_of(block_id b) const {
    std::uint32_t const k = level(b);
    return k == 0 ? nullptr : &facts_.shape(b).levels[k - 1];
  }
  /// Whether x has to stay after forward.
  constexpr bool needs_input(block_id b) const {
    trace::save_level const* const at = level_of(b);
    return facts_.shape(b).reads_input || strategy(b) == activation::strategy::checkpoint ||
           (at != nullptr && at->reads_input);
  }
  constexpr allocation_id take(
      category what, bytes size, block_id b, std::uint32_t m, space where = space::device) {
    return emit_.take(
        {.where = where, .what = what, .bytes = size.value, .block = b, .micro_batch = m});
  }

  constexpr void load_batch(std::uint32_t m) {
    next_batch_ = take(category::batch, facts_.batch, {}, m);
    if (!next_batch_.valid()) {
      return;
    }
    std::uint64_t const size = facts_.batch.value;
    emit_.begin(
        {.op = opcode::batch_load, .queue = queue_id::h2d, .micro_batch = m, .amount = size});
    emit_.use(role::batch,
              access::read,
              at_.host_batch,
              {.offset = checked_mul(size, m), .bytes = size, .advance = trains(part_) ? size : 0});
    emit_.use(role::batch, access::write, next_batch_);
    emit_.end();
  }

  constexpr void read_loss(std::uint32_t m) {
    std::uint64_t const size = size_of(losses_[m]);
    emit_.begin(
        {.op = opcode::loss_read, .queue = queue_id::d2h, .micro_batch = m, .amount = size});
    emit_.use(role::loss, access::read, losses_[m]);
    emit_.use(role::loss,
              access::write,
              at_.host_loss,
              {.offset = checked_mul(size, m),
               .bytes = size,
               .stride = rules_.ranks() > 1 ? own_losses() : 0,
               .advance = trains(part_) ? size : 0});
    emit_.end();
  }

  /// Bytes of one rank's losses: of the whole step, also where this program runs a part of it.
  constexpr std::uint64_t own_losses() const {
    return checked_mul(checked_mul(facts_.job.micro_batch, 4),
                       trains(part_) ? facts_.job.accumulate : stages_.micro_batches);
  }

  /// Every rank finds the losses of all: its own part of `amount` bytes lies at its rank.
  constexpr void exchange_losses() {
    if (rules_.ranks() == 1) {
      return;
    }
    std::uint64_t const own = own_losses();
    emit_.begin({.op = opcode::loss_exchange, .queue = queue_id::cpu, .amount = own});
    emit_.use(
        role::loss, access::read_write, at_.host_loss, {.bytes = checked_mul(own, rules_.ranks())});
    emit_.end();
  }

  /// x of a block; absent for one that reads batch tensors only.
  constexpr allocation_id input(block_id b) const {
    return b.value == 0 ? allocation_id{} : output_[b.index() - 1];
  }

  /// The operands that forward, recompute and backward share: values, batch, x.
  constexpr void use_inputs(block_id b, bool x) {
    for (chunk_id const c : layout_.chunks_of[b.index()]) {
      allocation_id const at = values_.resident(c);
      if (at.valid()) {
        emit_.use(role::value, access::read, at, {.bytes = rules_.value_bytes(c), .chunk = c});
      }
    }
    emit_.use(role::batch, access::read, batch_);
    if (x) {
      emit_.use(role::input, access::read, input(b));
    }
  }

  constexpr void forward(std::uint32_t m, block_id b) {
    trace::block_shape const& shape = facts_.shape(b);
    values_.enter(stages_.forward(m, b.value));
    output_[b.index()] = take(category::boundaries, shape.output, b, m);
    trace::save_level const* const at = level_of(b);
    saved_[b.index()] = take(category::activations, at != nullptr ? at->saved : shape.saved, b, m);
    allocation_id dropped =
        take(category::activations, at != nullptr ? at->rebuilt : bytes{}, b, m);
    allocation_id scratch = take(category::scratch, shape.scratch_forward, b, m);
    emit_.begin(
        {.op = opcode::forward, .micro_batch = m, .block = b, .version = 1, .level = level(b)});
    use_inputs(b, true);
    emit_.use(role::output, access::write, output_[b.index()]);
    emit_.use(role::saved, access::write, saved_[b.index()]);
    emit_.use(role::rebuilt, access::write, dropped);
    emit_.use(role::scratch, access::write, scratch);
    emit_.use(role::loss, access::read_write, losses_[m]);
    emit_.end();
    emit_.give(scratch);
    emit_.give(dropped);
    streams_.advance();
    if (!trains(part_)) {
      emit_.give(saved_[b.index()]);
      if (b.value > 0) {
        emit_.give(output_[b.index() - 1]);
      }
      return;
    }
    if (strategy(b) == activation::strategy::checkpoint) {
      emit_.give(saved_[b.index()]);
    } else if (strategy(b) == activation::strategy::swap) {
      swap_out(m, b);
    }
    if (b.value > 0 && !needs_input(b)) {
      emit_.give(output_[b.index() - 1]);
    }
  }

  /// The device copy stays until the next swap-out, so that one can be in flight beside compute.
  constexpr void swap_out(std::uint32_t m, block_id b) {
    allocation_id& device = saved_[b.index()];
    if (!device.valid()) {
      return;
    }
    std::uint64_t const size = size_of(device);
    allocation_id& host = swapped_[b.index()];
    host = take(category::swapped, {size}, b, m, space::host);
    emit_.begin({.op = opcode::swap_out,
                 .queue = queue_id::d2h,
                 .micro_batch = m,
                 .block = b,
                 .amount = size});
    emit_.use(role::saved, access::read, device);
    emit_.use(role::saved, access::write, host);
    emit_.end();
    emit_.give(leaving_);
    leaving_ = device;
    device = {};
  }

  constexpr void swap_in(std::uint32_t m, block_id b) {
    allocation_id& host = swapped_[b.index()];
    if (!host.valid()) {
      return;
    }
    std::uint64_t const size = size_of(host);
    saved_[b.index()] = take(category::activations, {size}, b, m);
    emit_.begin({.op = opcode::swap_in,
                 .queue = queue_id::h2d,
                 .micro_batch = m,
                 .block = b,
                 .amount = size});
    emit_.use(role::saved, access::read, host);
    emit_.use(role::saved, access::write, saved_[b.index()]);
    emit_.end();
    emit_.give(host);
  }

  constexpr void recompute(std::uint32_t m, block_id b) {
    trace::block_shape const& shape = facts_.shape(b);
    saved_[b.index()] = take(category::activations, shape.saved, b, m);
    allocation_id output = take(category::boundaries, shape.output, b, m);
    allocation_id scratch = take(category::scratch, shape.scratch_forward, b, m);
    emit_.begin({.op = opcode::recompute, .micro_batch = m, .block = b, .version = 1});
    use_inputs(b, true);
    emit_.use(role::output, access::write, output);
    emit_.use(role::saved, access::write, saved_[b.index()]);
    emit_.use(role::scratch, access::write, scratch);
    emit_.end();
    emit_.give(scratch);
    emit_.give(output);
  }

  /// What the block's level dropped; absent at level 0.
  constexpr allocation_id rebuild(std::uint32_t m, block_id b) {
    trace::save_level const* const at = level_of(b);
    if (at == nullptr) {
      return {};
    }
    allocation_id const rebuilt = take(category::activations, at->rebuilt, b, m);
    allocation_id scratch = take(category::scratch, at->scratch, b, m);
    emit_.begin(
        {.op = opcode::rebuild, .micro_batch = m, .block = b, .version = 1, .level = level(b)});
    use_inputs(b, at->reads_input);
    emit_.use(role::saved, access::read, saved_[b.index()]);
    emit_.use(role::rebuilt, access::write, rebuilt);
    emit_.use(role::scratch, access::write, scratch);
    emit_.end();
    emit_.give(scratch);
    return rebuilt;
  }

  constexpr void backward(std::uint32_t m, block_id b) {
    trace::block_shape const& shape = facts_.shape(b);
    values_.enter(stages_.backward(m, b.value));
    emit_.give(leaving_);
    for (std::uint32_t k = 0; k <= knobs_.swap_ahead && k <= b.value; ++k) {
      swap_in(m, make_id<block_id>(b.value - k));
    }
    if (strategy(b) == activation::strategy::checkpoint) {
      recompute(m, b);
    }
    allocation_id rebuilt = rebuild(m, b);
    allocation_id dx{};
    if (b.value > 0) {
      dx = take(category::boundaries, shape.input, b, m);
    }
    std::vector<std::uint32_t> const& spans = known_.of_block[b.index()];
    for (std::uint32_t const s : spans) {
      states_.open(m, s, b);
    }
    allocation_id scratch = take(category::scratch, shape.scratch_backward, b, m);
    emit_.begin(
        {.op = opcode::backward, .micro_batch = m, .block = b, .version = 1, .level = level(b)});
    use_inputs(b, shape.reads_input);
    emit_.use(role::output_gradient, access::read, output_gradient_[b.index()]);
    emit_.use(role::input_gradient, access::write, dx);
    emit_.use(role::saved, access::read, saved_[b.index()]);
    emit_.use(role::rebuilt, access::read, rebuilt);
    for (std::uint32_t const s : spans) {
      states_.use_gradient(s);
    }
    emit_.use(role::scratch, access::write, scratch);
    emit_.end();
    emit_.give(scratch);
    emit_.give(saved_[b.index()]);
    emit_.give(rebuilt);
    emit_.give(output_gradient_[b.index()]);
    if (b.value > 0) {
      output_gradient_[b.index() - 1] = dx;
      emit_.give(output_[b.index() - 1]);
    }
    streams_.advance();
    states_.complete_reduced();
    for (std::uint32_t const s : spans) {
      states_.close(m, s, b);
    }
  }

  emitter emit_;
  prepared const& known_;
  trace::trace const& facts_;
  chunk::layout const& layout_;
  knobs const& knobs_;
  segment part_;
  stages stages_;
  state_rules rules_;
  streams streams_;
  residency<Eviction> values_;
  states states_;
  carried at_{};
  std::vector<allocation_id> losses_;           ///< by micro-batch
  std::vector<allocation_id> output_;           ///< y by block, of the running micro-batch
  std::vector<allocation_id> output_gradient_;  ///< dy by block
  std::vector<allocation_id> saved_;
  std::vector<allocation_id> swapped_;
  allocation_id batch_{};
  allocation_id next_batch_{};
  allocation_id leaving_{};  ///< device copy of the last tensor that was swapped out
};

}  // namespace protrain::inline v0::schedule::detail
