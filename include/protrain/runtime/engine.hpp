// SPDX-License-Identifier: Apache-2.0
#pragma once
// Executes a program on a device. The engine owns nothing but addresses: memory is the device's,
// decisions are the program's, arithmetic is optim's and the blocks'.

#include "protrain/block/entry.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/device/device.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/detail/bindings.hpp"
#include "protrain/runtime/detail/executor.hpp"
#include "protrain/runtime/detail/leases.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/runtime/kernels.hpp"
#include "protrain/runtime/loss.hpp"

#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// Trains one model by one plan. Device, communicator and the blocks behind `model` must outlive
/// it. Not copyable, not movable; one thread calls it.
///
/// Errors: `engine_error` when plan, model or batch don't fit each other; what the device or a
/// block throws otherwise. Before a step's first update a failure leaves the engine usable; after
/// it, only destruction and `initialise` are left.
template <device::device Device,
          comm::communicator Comm = comm::self,
          optim::update_rule Rule = optim::adamw>
class engine {
  static_assert(Rule::state_tensors <= 2,
                "engine: state formats hold two fp32 tensors per parameter; use a rule with at "
                "most two");

 public:
  /// Verifies the program, reserves the arenas and takes what is carried. Parameters are +0 until
  /// `initialise`.
  engine(Device& device, Comm& comm, block::table model, plan_parts parts, Rule rule = {})
      : device_(device),
        comm_(comm),
        model_(std::move(model)),
        parts_(detail::checked(std::move(parts), model_, comm.size())),
        rule_(std::move(rule)),
        bytes_(*update::bytes_of(parts_.facts.job)),
        bind_((reserve(),
               detail::bindings(
                   program(), parts_.layout, model_, bytes_.value, bytes_.gradient, bases()))),
        leases_(device, program()),
        executor_(device, comm, model_, parts_, bind_),
        events_(program().instructions.size()),
        announced_(detail::announced(program())) {
    detail::index_homes(homes_, program(), parts_.layout);
    device_.reset_usage();
    leases_.take_carried();
    clear_carried();
  }
  /// From a model and its plan; the stack must outlive the engine.
  template <class... Blocks>
  engine(Device& device,
         Comm& comm,
         block::stack<Blocks...> const& model,
         plan::plan const& p,
         Rule rule = {})
      : engine(device, comm, model.entries(p.trace.job), parts_of(p), std::move(rule)) {}
  engine(engine const&) = delete;
  engine& operator=(engine const&) = delete;

  /// Sets every parameter, one at a time: `load(parameter, values)` fills `values`, one fp32 per
  /// element. Host memory: one chunk. State starts at +0 and the step count at 0.
  template <class Load>
  void initialise(Load&& load) {
    for (std::size_t c = 0; c < parts_.layout.chunks.size(); ++c) {
      chunk::chunk const& each = parts_.layout.chunks[c];
      if (each.elements > 0) {
        chunk_image image(each, homes_[c], bytes_);
        std::vector<float> values;
        for (chunk::placed_tensor const& t : each.tensors) {
          values.assign(t.elements, 0.0F);
          load(parameter(t.parameter), std::span<float>(values));
          write_master(job().state, values.data(), t, image.arrays());
        }
        transfer(homes_[c], image, true);
      }
    }
    applied_ = 0;
    attempted_ = 0;
    failed_ = false;
  }

  /// The fp32 (master) values of one parameter.
  std::vector<float> read(parameter_id id) {
    chunk::location const& where = parts_.layout.where[id.index()];
    chunk::chunk const& each = parts_.layout[where.owner];
    std::vector<float> out(model::elements(parameter(id)), 0.0F);
    if (!out.empty()) {
      detail::homes const& home = homes_[where.owner.index()];
      chunk_image image(each, home, bytes_);
      transfer(home, image, false);
      read_master(job().state, out.data(), {id, where.offset, out.size()}, image.arrays());
    }
    return out;
  }

  /// One optimizer step over all micro-batches of `data`. Waits for its end.
  step_result step(batch const& data, step_options const& options) {
    if (failed_) {
      throw engine_error(
          "the engine failed during an update: initialise it again or make a new one");
    }
    double const start = device_.seconds();
    prepare(data, options);
    ++attempted_;
    try {
      issue();
      device_.synchronize();
    } catch (...) {
      recover();
      throw;
    }
    leases_.finish();
    device_.reset_events();
    ++applied_;
    return answer(start);
  }

  /// What the device counted since construction, and what the program says.
  device::usage measured(space s) const { return device_.usage_of(s); }
  schedule::memory_report predicted(space s) const { return schedule::memory_of(program(), s); }

  /// Bytes that blocks were promised and left unused in their last passes: 0 for blocks whose trace
  /// is exact.
  std::uint64_t unused() const noexcept { return executor_.unused(); }

  schedule::program const& program() const noexcept { return parts_.program; }
  trace::trace const& facts() const noexcept { return parts_.facts; }
  block::table const& model() const noexcept { return model_; }

 private:
  model::job const& job() const noexcept { return parts_.facts.job; }
  model::parameter const& parameter(parameter_id id) const {
    return parts_.facts.parameters[id.index()];
  }
  detail::bases bases() const { return {device_.base(space::device), device_.base(space::host)}; }

  void reserve() {
    for (space const s : {space::device, space::host}) {
      device_.reserve(s, schedule::memory_of(program(), s).peak);
    }
  }

  // --- carried memory ----------------------------------------------------------------------------

  /// Runs `work` on a queue and waits: set-up and reading, never during a step.
  template <class F>
  void run_now(queue_id q, device::touched const& range, F work) {
    device::task const t{[](void* context, std::uint32_t, device::queue_ref queue) {
                           (*static_cast<F*>(context))(queue);
                         },
                         &work,
                         0};
    device_.submit(q, std::span(&range, 1), t);
    device_.synchronize();
    device_.reset_events();
  }

  void clear_carried() {
    for (schedule::allocation const& a : program().allocations) {
      if (a.carried) {
        std::byte* const at = device_.base(a.where) + a.offset;
        queue_id const q = a.where == space::device ? queue_id::compute : queue_id::cpu;
        run_now(q, {a.where, a.offset, a.bytes, true, false}, [&](device::queue_ref queue) {
          device_.zero(queue, at, a.bytes);
        });
      }
    }
  }

  /// Copies a chunk's value and state between its home and an image on the heap.
  void transfer(detail::homes const& home, chunk_image& image, bool to_home) {
    transfer_one(home.value, image.value(), to_home);
    transfer_one(home.state, image.state(), to_home);
  }
  void transfer_one(allocation_id home, std::span<std::byte> image, bool to_home) {
    if (!home.valid()) {
      return;
    }
    schedule::allocation const& a = program().allocations[home.index()];
    std::byte* const at = device_.base(a.where) + a.offset;
    queue_id const to = a.where == space::device ? queue_id::h2d : queue_id::cpu;
    queue_id const from = a.where == space::device ? queue_id::d2h : queue_id::cpu;
    run_now(to_home ? to : from,
            {a.where, a.offset, a.bytes, to_home, !to_home},
            [&](device::queue_ref queue) {
              device_.copy(
                  queue, to_home ? at : image.data(), to_home ? image.data() : at, image.size());
            });
  }

  // --- a step ------------------------------------------------------------------------------------

  void prepare(batch const& data, step_options const& options) {
    weight_ = comm_.sum(data.targets());
    auto const t = static_cast<std::int64_t>(applied_ + 1);
    executor_.begin_step({.with_decay = rule_.prepare(options.learning_rate, t, true),
                          .without_decay = rule_.prepare(options.learning_rate, t, false),
                          .loss_scale = loss_scale(weight_),
                          .step = attempted_});
    if (homes_.host_scalars.valid()) {
      float const scale = 1.0F;
      std::memcpy(cell(homes_.host_scalars), &scale, sizeof scale);
    }
    for (std::size_t k = 0, offset = 0; k < model_.batch.size(); ++k) {
      std::uint64_t const one = model_.batch[k].facts.bytes();
      void const* const from =
          detail::tensor_of(data, model_.batch[k].name, one * job().accumulate);
      for (std::uint64_t m = 0; m < job().accumulate; ++m) {
        std::memcpy(cell(homes_.host_batch) + m * parts_.facts.batch.value + offset,
                    static_cast<std::byte const*>(from) + m * one,
                    one);
      }
      offset += granules(one);
    }
  }

  /// After a failure: what was submitted is waited for, so that nothing touches memory that is
  /// handed out again; a retry of the step then has the same bits.
  void recover() noexcept {
    try {
      device_.synchronize();
    } catch (...) {  // NOLINT(bugprone-empty-catch): the first failure is the one that counts
    }
    leases_.abandon();
    device_.reset_events();
    failed_ = executor_.updating();
    --attempted_;
  }

  std::byte* cell(allocation_id id) const {
    return device_.base(space::host) + program().allocations[id.index()].offset;
  }

  void issue() {
    device::task task{&engine::run_task, this, 0};
    for (std::uint32_t i = 0; i < program().instructions.size(); ++i) {
      schedule::instruction const& at = program().instructions[i];
      leases_.advance(i);
      for (std::uint32_t const d : program().dependencies_of(at)) {
        if (program().instructions[d].queue != at.queue) {
          device_.wait(at.queue, events_[d]);
        }
      }
      task.index = i;
      device_.submit(at.queue, bind_.touched_by(i), task);
      if (announced_[i] != 0) {
        events_[i] = device_.record(at.queue);
      }
    }
  }

  step_result answer(double start) {
    norm_report report;
    std::memcpy(&report, cell(homes_.report), sizeof report);
    std::span<float const> const losses(
        reinterpret_cast<float const*>(cell(homes_.host_loss)),
        static_cast<std::size_t>(job().micro_batch * job().accumulate));
    return {.step = attempted_,
            .loss = mean_loss(losses, weight_),
            .grad_norm = report.norm,
            .grad_norm_clipped = report.norm * report.clip_factor,
            .tokens = model::tokens_per_step(job()),
            .seconds = device_.seconds() - start};
  }

  static void run_task(void* self, std::uint32_t index, device::queue_ref queue) {
    static_cast<engine*>(self)->executor_.execute(index, queue);
  }

  Device& device_;
  Comm& comm_;
  block::table model_;
  plan_parts parts_;
  Rule rule_;
  update::state_bytes bytes_;
  detail::bindings bind_;
  detail::leases<Device> leases_;
  detail::home_table homes_;
  detail::executor<Device, Comm, Rule> executor_;
  std::vector<device::event> events_;
  std::vector<std::uint8_t> announced_;

  std::uint64_t weight_ = 0;     ///< target tokens of the running step, over all ranks
  std::uint64_t attempted_ = 0;  ///< steps that ran to their end, skipped ones too
  std::uint64_t applied_ = 0;    ///< updates
  bool failed_ = false;
};

}  // namespace protrain::inline v0::runtime
