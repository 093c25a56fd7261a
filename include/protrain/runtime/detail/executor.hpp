// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each instruction does when its turn comes on a queue.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/block/saved.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/device/device.hpp"
#include "protrain/model/parameter.hpp"
#include "protrain/optim/scale.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/detail/bindings.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/detail/shards.hpp"
#include "protrain/runtime/kernels.hpp"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Parameters that one set of step values serves.
struct parameter_group {
  bool decay = true;
  float learning_rate_scale = 1;
  bool operator==(parameter_group const&) const = default;
};

/// The distinct groups, and each parameter's.
struct parameter_groups {
  std::vector<parameter_group> members{};
  std::vector<std::uint32_t> of{};  ///< by parameter
};

inline parameter_groups groups_of(std::vector<model::parameter> const& parameters) {
  parameter_groups out;
  for (model::parameter const& p : parameters) {
    parameter_group const group{p.decay, p.learning_rate_scale};
    auto const at = std::ranges::find(out.members, group);
    out.of.push_back(static_cast<std::uint32_t>(at - out.members.begin()));
    if (at == out.members.end()) {
      out.members.push_back(group);
    }
  }
  return out;
}

/// What the instructions of one step have in common. Written before the first is submitted.
template <optim::update_rule Rule>
struct step_values {
  std::vector<typename Rule::step_type> groups{};  ///< by position in `executor::groups_`
  float loss_scale = 0;
  std::uint64_t step = 0;  ///< attempted steps before this one

  static step_values of(std::size_t groups) {
    return {.groups = std::vector<typename Rule::step_type>(groups)};
  }
};

/// What an update multiplies gradients by, and whether it is left out: the scalars cell.
struct update_scalars {
  float scale = 1;
  std::uint32_t skip = 0;
};
static_assert(sizeof(update_scalars) <= schedule::scalars_bytes);

template <device::device Device, comm::communicator Comm, optim::update_rule Rule>
class executor {
 public:
  /// Everything is borrowed from the engine.
  executor(Device& device, Comm& comm, block::table const& model, plan_parts const& parts)
      : device_(device),
        comm_(comm),
        model_(model),
        parts_(parts),
        shards_(shards_of(parts.layout, comm.rank(), comm.size())),
        bytes_(*update::bytes_of(parts.facts.job)),
        groups_(groups_of(parts.facts.parameters)),
        slots_(model.blocks.size()),
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
        return add_norm(shard(i.chunk), arrays(i), address(i, role::norm));
      case op::norm_exchange:
        return exchange_norm(i, queue);
      case op::norm_finish:
        return finish_norm(i);
      case op::update:
        return update(i);
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
                   .queue = queue};
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
    unused_ += b.scratch.bytes - s.scratch_peak();
  }

  bool evaluates() const noexcept { return program().part == schedule::segment::evaluate; }
  block::pass pass_of(op what) const noexcept {
    if (what == op::forward) {
      return evaluates() ? block::pass::evaluate : block::pass::forward;
    }
    if (what == op::rebuild) {
      return block::pass::rebuild;
    }
    return what == op::recompute ? block::pass::recompute : block::pass::backward;
  }

  /// Samples of a step in order: micro-batches, ranks in each, samples of each.
  std::uint64_t first_sample(std::uint32_t micro_batch) const noexcept {
    std::uint64_t const m = evaluates() ? evaluated_micro_batch_ : bind_->before() + micro_batch;
    return (m * comm_.size() + comm_.rank()) * job().micro_batch;
  }

  dtype store_type(schedule::operand const& o) const {
    bool const wide = o.bytes == shard(o.chunk).elements * 4;
    return wide ? dtype::f32 : job().type;
  }

  void accumulate_span(schedule::instruction const& i) {
    runtime::accumulate(program().spans[i.span.index()],
                        shard(i.chunk),
                        bind_->before() + i.micro_batch == 0,
                        job().type,
                        store_type(find(i, role::store)),
                        address(i, role::gradient),
                        address(i, role::store));
  }

  /// The chunk's arrays as norm and update see them.
  chunk_arrays arrays(schedule::instruction const& i) const {
    bool const stored = has(i, role::store);
    schedule::operand const& g = find(i, stored ? role::store : role::gradient);
    return {.value = has(i, role::value) ? address(i, role::value) : nullptr,
            .state = has(i, role::state) ? address(i, role::state) : nullptr,
            .gradient = bind_->address(program(), g),
            .gradient_type = stored ? store_type(g) : job().type,
            .value_type = job().type,
            .elements = shard(i.chunk).elements};
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
    for (chunk::placed_tensor const& t : shard(i.chunk).tensors) {
      if (t.elements > 0) {
        std::uint32_t const group = groups_.of[t.parameter.index()];
        update_tensor<Rule>(job().state, of.groups[group], scale, t, a);
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
  std::vector<block::saved_table> slots_;
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
