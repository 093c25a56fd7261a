// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each instruction does when its turn comes on a queue.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/block/guarded_pass.hpp"
#include "protrain/block/guards.hpp"
#include "protrain/block/saved.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/device/device.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/detail/bindings.hpp"
#include "protrain/runtime/detail/cpu_work.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/detail/shards.hpp"
#include "protrain/runtime/detail/step_values.hpp"
#include "protrain/runtime/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace protrain::inline v0::runtime::detail {

template <device::device Device, comm::communicator Comm, optim::update_rule Rule>
class executor {
 public:
  /// Everything is borrowed from the engine; `threads` are of queue `cpu`.
  executor(Device& device,
           Comm& comm,
           block::table const& model,
           plan_parts const& parts,
           std::uint32_t threads)
      : device_(device),
        comm_(comm),
        model_(model),
        parts_(parts),
        shards_(shards_of(parts.layout, comm.rank(), comm.size())),
        bytes_(*update::bytes_of(parts.facts.job)),
        groups_(groups_of(parts.facts.parameters)),
        cpu_(threads),
        slots_(model.blocks.size()),
        guards_(parts.facts.job),
        now_(step_values<Rule>::of(groups_.members.size())),
        left_(now_) {}

  /// Before a segment runs. Nothing may be running.
  void begin(schedule::program const& p, bindings const& bind) {
    program_ = &p;
    bind_ = &bind;
    own_updates_ = 0;
    left_started_ = 0;
    left_done_ = 0;
    unused_ = 0;
  }
  /// The values of the step that makes update `t`: the rule's once per parameter group, here.
  void begin_step(Rule const& rule,
                  double learning_rate,
                  std::int64_t t,
                  float loss_scale,
                  std::uint64_t step) {
    now_.loss_scale = loss_scale;
    now_.step = step;
    for (std::size_t g = 0; g < groups_.members.size(); ++g) {
      parameter_group const& of = groups_.members[g];
      now_.groups[g] = rule.prepare(learning_rate * of.learning_rate_scale, t, of.decay);
    }
  }
  /// After a step: the updates that it left over keep its values.
  void leave_over() { left_ = now_; }
  /// Micro-batch `micro_batch` of an evaluation after `step` attempted steps.
  void begin_evaluation(std::uint64_t step, std::uint64_t micro_batch) {
    evaluated_step_ = step;
    evaluated_micro_batch_ = micro_batch;
  }

  /// Updates of the running segment: its own that have started, and those that were left over.
  std::uint32_t own_updates() const noexcept { return own_updates_.load(); }
  std::uint32_t left_started() const noexcept { return left_started_.load(); }
  std::uint32_t left_done() const noexcept { return left_done_.load(); }
  std::uint64_t unused() const noexcept { return unused_.load(); }
  std::uint32_t threads() const noexcept { return cpu_.threads(); }

  void execute(std::uint32_t index, device::queue_ref queue) {
    schedule::instruction const& i = program().instructions[index];
    float_environment const environment;
    switch (i.op) {
      case op::forward:
      case op::recompute:
      case op::rebuild:
      case op::backward:
        return run_block(i, bind_->pass(index), queue);
      case op::batch_load:
      case op::upload:
      case op::swap_out:
      case op::swap_in:
      case op::offload:
      case op::norm_read:
      case op::scalars_upload:
      case op::loss_read:
        return copy(i, queue);
      case op::zero:
        return device_.zero(queue, operand_address(i, 0), i.amount);
      case op::reduce:
        return comm_.reduce_scatter_ordered(
            queue,
            address(i, role::gradient),
            has(i, role::staging) ? address(i, role::staging) : nullptr,
            i.amount / bytes_.gradient,
            job().type);
      case op::gather:
        return comm_.all_gather(queue, address(i, role::value), i.amount / comm_.size());
      case op::loss_exchange:
        return comm_.all_gather(queue, address(i, role::loss), i.amount);
      case op::accumulate:
        return accumulate_span(i);
      case op::norm_partial:
        return cpu_.add_norm(i.queue, shard(i.chunk), arrays(i), address(i, role::norm));
      case op::norm_exchange:
        return exchange_norm(i, queue);
      case op::norm_finish:
        return finish_norm(i);
      case op::update:
        return update(i);
      case op::state_in:
        return copy_part(i, queue);
      case op::update_part:
        return update_part(i);
      case op::state_out:
        return bring_back(i, queue);
    }
  }

 private:
  using op = schedule::opcode;
  using role = schedule::role;

  model::job const& job() const noexcept { return parts_.facts.job; }
  schedule::program const& program() const noexcept { return *program_; }
  chunk::chunk const& shard(chunk_id c) const { return shards_[c.index()]; }

  schedule::operand const& find(schedule::instruction const& i,
                                role what,
                                std::size_t nth = 0) const {
    for (schedule::operand const& o : program().operands_of(i)) {
      if (o.what == what && nth-- == 0) {
        return o;
      }
    }
    PROTRAIN_EXPECT(false, "an instruction without an operand it needs");
    return program().operands.front();
  }
  std::byte* address(schedule::instruction const& i, role what, std::size_t nth = 0) const {
    return bind_->address(program(), find(i, what, nth));
  }
  bool has(schedule::instruction const& i, role what) const {
    return std::ranges::any_of(program().operands_of(i),
                               [what](schedule::operand const& o) { return o.what == what; });
  }
  std::byte* operand_address(schedule::instruction const& i, std::size_t n) const {
    return bind_->address(program(), program().operands_of(i)[n]);
  }

  /// From the first operand to the second.
  void copy(schedule::instruction const& i, device::queue_ref queue) {
    device_.copy(queue, operand_address(i, 1), operand_address(i, 0), i.amount);
  }

  /// Each array that the slot holds as one range lies on the host as one range or several.
  void copy_part(schedule::instruction const& i, device::queue_ref queue) {
    std::byte* slot = nullptr;
    for (schedule::operand const& o : program().operands_of(i)) {
      std::byte* const at = bind_->address(program(), o);
      if (program().allocations[o.allocation.index()].where == space::device) {
        slot = at;
        continue;
      }
      bool const up = i.op == op::state_in;
      device_.copy(queue, up ? slot : at, up ? at : slot, o.bytes);
      slot += o.bytes;
    }
  }

  /// A streamed chunk changes where it lives when its first part is back, until its last one is.
  void bring_back(schedule::instruction const& i, device::queue_ref queue) {
    bool const left_over = i.version == 1;
    std::uint64_t const end = (i.part + 1) * program().part_elements[i.chunk.index()];
    if (i.part == 0) {
      ++(left_over ? left_started_ : own_updates_);
    }
    copy_part(i, queue);
    left_done_ += left_over && end >= shard(i.chunk).elements ? 1U : 0U;
  }

  void run_block(schedule::instruction const& i, pass_binding const& b, device::queue_ref queue) {
    block::block_entry const& entry = model_.blocks[i.block.index()];
    block::frame f{.entry = &entry,
                   .pass = pass_of(i.op),
                   .x = b.x,
                   .values = b.values,
                   .gradients = b.gradients,
                   .batch = b.batch,
                   .level = i.level,
                   .saved = b.saved,
                   .dropped = b.dropped,
                   .scratch = b.scratch,
                   .slots = &slots_[i.block.index()],
                   .losses = b.losses,
                   .loss_scale = evaluates() ? 0.0F : now_.loss_scale,
                   .samples = job().micro_batch,
                   .random = {.seed = job().seed,
                              .step = evaluates() ? evaluated_step_ : now_.step,
                              .sample = first_sample(i.micro_batch),
                              .block = i.block.value,
                              .op = 0},
                   .queue = queue,
                   .guard = model::guard_bytes(job()),
                   .guards = guards_.on() ? &guards_ : nullptr};
    block::guarded_pass const guard(f, i.op == op::backward ? b.dx : b.y);
    block::scope s(f);
    if (i.op == op::backward) {
      entry.backward(entry.object, s, b.x, b.dy, b.dx);
    } else if (i.op == op::rebuild) {
      block::run_rebuild(entry, s, b.x);
    } else {
      entry.forward(entry.object, s, b.x, b.y);
      unused_ += b.saved.bytes - s.saved_used();
      unused_ += b.dropped.bytes - s.dropped_used();
    }
    guard.finish();
    unused_ += b.scratch.bytes - s.scratch_peak();
  }

  bool evaluates() const noexcept { return program().part == schedule::segment::evaluate; }
  block::pass pass_of(op what) const noexcept {
    if (what == op::forward) {
      return evaluates() ? block::pass::evaluate : block::pass::forward;
    }
    block::pass const made = what == op::rebuild ? block::pass::rebuild : block::pass::recompute;
    return what == op::backward ? block::pass::backward : made;
  }

  /// Samples of a step in order: micro-batches, ranks in each, samples of each.
  std::uint64_t first_sample(std::uint32_t micro_batch) const noexcept {
    std::uint64_t const m = evaluates() ? evaluated_micro_batch_ : bind_->before() + micro_batch;
    return (m * comm_.size() + comm_.rank()) * job().micro_batch;
  }

  /// Of a store that holds `elements`: sums are fp32.
  dtype store_type(schedule::operand const& o, std::uint64_t elements) const {
    return o.bytes == elements * 4 ? dtype::f32 : job().type;
  }

  void accumulate_span(schedule::instruction const& i) {
    cpu_.in_pieces(i.queue, shard(i.chunk), [&](optim::element_range const& piece) {
      runtime::accumulate(program().spans[i.span.index()],
                          shard(i.chunk),
                          bind_->before() + i.micro_batch == 0,
                          job().type,
                          store_type(find(i, role::store), shard(i.chunk).elements),
                          address(i, role::gradient),
                          address(i, role::store),
                          piece);
    });
  }

  /// The chunk's arrays as norm and update see them.
  chunk_arrays arrays(schedule::instruction const& i) const {
    bool const stored = has(i, role::store);
    schedule::operand const& g = find(i, stored ? role::store : role::gradient);
    return {.value = has(i, role::value) ? address(i, role::value) : nullptr,
            .state = has(i, role::state) ? address(i, role::state) : nullptr,
            .gradient = bind_->address(program(), g),
            .gradient_type = stored ? store_type(g, i.amount) : job().type,
            .value_type = job().type,
            .elements = i.amount};
  }

  /// This rank's sum of squares: the host's chunks and the device's.
  optim::exact_sum own_norm(schedule::instruction const& i) const {
    optim::exact_sum sum;
    std::memcpy(&sum, address(i, role::norm), sizeof sum);
    if (has(i, role::norm_copy)) {
      optim::exact_sum device;
      std::memcpy(&device, address(i, role::norm_copy), sizeof device);
      sum.merge(device);
    }
    return sum;
  }

  void exchange_norm(schedule::instruction const& i, device::queue_ref queue) {
    optim::exact_sum const sum = own_norm(i);
    std::byte* const cells = address(i, role::norms);
    std::memcpy(cells + comm_.rank() * schedule::norm_cell_bytes, &sum, sizeof sum);
    comm_.all_gather(queue, cells, schedule::norm_cell_bytes);
  }

  /// Integer sums don't depend on the order of ranks: every rank finds the same bits by itself.
  optim::exact_sum global_norm(schedule::instruction const& i) const {
    if (!has(i, role::norms)) {
      return own_norm(i);
    }
    optim::exact_sum all;
    for (std::uint32_t r = 0; r < comm_.size(); ++r) {
      optim::exact_sum one;
      std::memcpy(&one, address(i, role::norms) + r * schedule::norm_cell_bytes, sizeof one);
      all.merge(one);
    }
    return all;
  }

  void finish_norm(schedule::instruction const& i) {
    optim::exact_sum const sum = global_norm(i);
    // Gradients lie in memory multiplied by the loss scale; its inverse is a power of two as well.
    float const inverse = 1.0F / job().loss_scale;
    float const stored = optim::norm(sum);
    norm_report r{.norm = canonical(optim::product(inverse, stored))};
    r.clip_factor = optim::clip_factor(r.norm, job().clip);
    r.scale = optim::gradient_scale(inverse, stored, job().clip);
    r.non_finite = sum.finite() ? 0 : 1;
    std::memcpy(address(i, role::report), &r, sizeof r);
    if (has(i, role::scalars)) {
      update_scalars const now{r.scale, job().skip ? r.non_finite : 0};
      std::memcpy(address(i, role::scalars), &now, sizeof now);
    }
  }

  void update(schedule::instruction const& i) {
    bool const left_over = i.version == 0;
    ++(left_over ? left_started_ : own_updates_);
    update_scalars scalars;
    std::memcpy(&scalars, address(i, role::scalars), sizeof scalars);
    if (scalars.skip == 0) {
      update_chunk(i, left_over ? left_ : now_, scalars.scale);
    }
    left_done_ += left_over ? 1U : 0U;
  }

  void update_chunk(schedule::instruction const& i, step_values<Rule> const& of, float scale) {
    chunk_arrays const a = arrays(i);
    cpu_.in_pieces(i.queue, shard(i.chunk), [&](optim::element_range const& piece) {
      for (chunk::placed_tensor const& whole : shard(i.chunk).tensors) {
        chunk::placed_tensor const t = within(whole, piece);
        if (t.elements > 0) {
          std::uint32_t const group = groups_.of[t.parameter.index()];
          update_tensor<Rule>(job().state, of.groups[group], scale, t, a);
        }
      }
    });
  }

  /// The elements of the chunk that lie in the part, at their places in the slot.
  void update_part(schedule::instruction const& i) {
    update_scalars scalars;
    std::memcpy(&scalars, address(i, role::scalars), sizeof scalars);
    if (scalars.skip != 0) {
      return;
    }
    step_values<Rule> const& of = i.version == 0 ? left_ : now_;
    std::uint64_t const begin = i.part * program().part_elements[i.chunk.index()];
    for (chunk::placed_tensor const& whole : shard(i.chunk).tensors) {
      chunk::placed_tensor const t = part_of(whole, begin, i.amount);
      if (t.elements > 0) {
        std::uint32_t const group = groups_.of[t.parameter.index()];
        update_tensor<Rule>(job().state, of.groups[group], scalars.scale, t, arrays(i));
      }
    }
  }

  Device& device_;
  Comm& comm_;
  block::table const& model_;
  plan_parts const& parts_;
  schedule::program const* program_ = nullptr;
  bindings const* bind_ = nullptr;
  std::vector<chunk::chunk> shards_;  ///< this rank's part of each chunk
  update::state_bytes bytes_;
  parameter_groups groups_;
  cpu_work cpu_;
  std::vector<block::saved_table> slots_;
  block::guards guards_;  ///< of the compute queue
  step_values<Rule> now_;
  step_values<Rule> left_;
  std::uint64_t evaluated_step_ = 0;
  std::uint64_t evaluated_micro_batch_ = 0;
  std::atomic<std::uint64_t> unused_{0};
  std::atomic<std::uint32_t> own_updates_{0};
  std::atomic<std::uint32_t> left_started_{0};
  std::atomic<std::uint32_t> left_done_{0};
};

}  // namespace protrain::inline v0::runtime::detail
