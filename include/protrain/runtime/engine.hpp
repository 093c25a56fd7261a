// SPDX-License-Identifier: Apache-2.0
#pragma once
// Executes programs on a device. The engine owns nothing but addresses: memory is the device's,
// decisions are the program's, arithmetic is optim's and the blocks'.

#include "protrain/block/entry.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/device/device.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/cpu_threads.hpp"
#include "protrain/runtime/detail/agreement.hpp"
#include "protrain/runtime/detail/executor.hpp"
#include "protrain/runtime/detail/requirements.hpp"
#include "protrain/runtime/detail/reserve.hpp"
#include "protrain/runtime/detail/segments.hpp"
#include "protrain/runtime/detail/setup.hpp"
#include "protrain/runtime/detail/storage.hpp"
#include "protrain/runtime/detail/watch.hpp"
#include "protrain/runtime/engine_options.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/runtime/loss.hpp"
#include "protrain/runtime/pending.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// Trains one model by one plan, as one rank of `comm`. Device, communicator and the blocks behind
/// `model` must outlive it. Not copyable, not movable; one thread calls it. With several ranks,
/// `step`, `evaluate`, `flush`, `read` and `visit` are collective: every rank makes the same calls
/// in the same order.
///
/// Errors: `engine_error` when plan, model, batch or the ranks' programs don't fit each other;
/// `memory_error` when the device refuses the plan's memory; `stall_error` when a step hangs; what
/// device, communicator or a block throws otherwise. Before a step's first update a failure leaves
/// the engine of a single rank usable; after it, and with several ranks, only destruction and
/// `initialise` are left. A failure aborts the communicator, so that no rank waits for this one.
template <class Device, class Comm = comm::self, class Rule = optim::adamw>
class engine {
  static_assert(detail::can_make_engine<Device, Comm, Rule>());

 public:
  using pending_step = pending<engine>;

  /// Verifies the programs, reserves the arenas and takes what is carried. Parameters are +0 until
  /// `initialise`.
  engine(Device& device,
         Comm& comm,
         block::table model,
         plan_parts parts,
         Rule rule = {},
         engine_options const& options = {}) try
      : device_(device),
        comm_(comm),
        model_(std::move(model)),
        parts_(detail::checked(std::move(parts), model_, comm.rank(), comm.size())),
        agreement_(parts_.programs),
        rule_(std::move(rule)),
        bytes_(*update::bytes_of(parts_.facts.job)),
        segments_(device),
        storage_(device, comm, parts_),
        executor_(device, comm, model_, parts_, threads_of<Device>(options, comm)),
        watch_(device, comm, options),
        deferred_(static_cast<std::uint32_t>(std::ranges::count(program().deferred, 1))) {
    guarded([&] {
      detail::reserve_arenas(device_, parts_);
      device_.reset_usage();
      segments_.load(parts_.programs, parts_.layout, model_, bytes_, bases(), comm.rank());
      storage_.clear(segments_.carried());
      losses_.reserve(job().accumulate * comm.size() * job().micro_batch);  // an end can't fail
    });
  } catch (...) {
    detail::abort_for_exception(comm);
  }
  /// From a model and its plan; the stack must outlive the engine.
  template <class... Blocks>
  engine(Device& device,
         Comm& comm,
         block::stack<Blocks...> const& model,
         plan::plan const& p,
         Rule rule = {},
         engine_options const& options = {}) try
      : engine(device, comm, model.entries(p.trace.job), parts_of(p), std::move(rule), options) {
  } catch (...) {
    detail::abort_for_exception(comm);
  }
  engine(engine const&) = delete;
  engine& operator=(engine const&) = delete;
  /// Waits for a step that is still running; its failure is lost with its results. While a queue
  /// hangs an engine can't be destroyed: that is a contract error.
  ~engine() {
    try {
      drop_running();
    } catch (...) {  // NOLINT(bugprone-empty-catch): it is cleaned up, and nobody can be told
    }
    PROTRAIN_EXPECT(!hangs(), "an engine is destroyed while a queue hangs and uses its memory");
  }

  /// Sets every parameter, one at a time: `load(parameter, values)` fills `values`, one fp32 per
  /// element, the same on every rank. Host memory: one chunk. State starts at +0 and the step count
  /// at 0; updates that were left over are dropped.
  template <class Load>
  void initialise(Load const& load) {
    drop_running();
    guarded([&] { storage_.initialise(load); });
    applied_ = 0;
    attempted_ = 0;
    left_over_ = false;
    failed_ = false;
  }

  /// The fp32 (master) values of one parameter, with every update. Host memory: the chunk's value
  /// and state of every rank.
  std::vector<float> read(parameter_id id) {
    flush();
    return guarded([&] {
      std::vector<float> out(model::elements(parameter(id)), 0.0F);
      storage_.read(id, out);
      return out;
    });
  }

  /// `see(parameter, values)` for every parameter in order, streamed: host memory as for `read`.
  template <class See>
  void visit(See const& see) {
    for (std::size_t i = 0; i < parts_.facts.parameters.size(); ++i) {
      auto const values = read(make_id<parameter_id>(i));
      see(parts_.facts.parameters[i], std::span<float const>(values));
    }
  }

  /// Starts one optimizer step over all micro-batches of `data`, which may be reused at once. Waits
  /// for the step before, if that is still running, and for all but the last program of a step that
  /// is cut into several.
  pending_step step(batch const& data, step_options const& options) {
    finish();
    check_usable();
    guarded([&] {
      prepare(data, options);
      run_step();
    });
    return {*this, attempted_};
  }

  /// Mean loss over the target tokens of `data`, in evaluation mode, with every update; parameters
  /// and training are as if it had not been called. `data` holds one or more micro-batches. Waits.
  float evaluate(batch const& data) {
    flush();
    if (segments_.find(schedule::segment::evaluate) == nullptr) {
      throw engine_error("the plan has no program of an evaluation: compile all its segments");
    }
    return guarded([&] {
      std::uint64_t const count = detail::micro_batches_in(data, model_);
      std::uint64_t const weight = comm_.sum(data.targets());
      std::vector<float> losses;
      for (std::uint64_t m = 0; m < count; ++m) {
        load_batch(data, m, 1, count);
        executor_.begin_evaluation(attempted_, m);
        start(*segments_.find(schedule::segment::evaluate));
        wait();
        add_losses(losses, storage_.losses(), 1, comm_.size(), job().micro_batch);
      }
      return mean_loss(losses, weight);
    });
  }

  /// Carries out the updates that the last step left to the next one. Never changes a bit. Waits.
  void flush() {
    finish();
    check_usable();
    if (left_over_) {
      guarded([&] {
        start(segments_.either(schedule::segment::flush, schedule::segment::flush));
        wait();
      });
    }
  }

  /// What the device counted since construction, and what the programs that ran so far say.
  device::usage measured(space s) const { return device_.usage_of(s); }
  schedule::memory_report predicted(space s) const { return segments_.predicted(s); }

  /// After a stall_error: whether something still hangs, so that the process had better end.
  bool hangs() const noexcept { return failed_ && running_ != nullptr; }

  /// Bytes that blocks were promised and left unused in their last passes: 0 for blocks whose trace
  /// is exact.
  std::uint64_t unused() const noexcept { return executor_.unused(); }

  /// Threads of its work on queue `cpu`.
  std::uint32_t threads() const noexcept { return executor_.threads(); }

  /// The program of a step, or the one that begins it where it is cut into several.
  schedule::program const& program() const noexcept { return parts_.programs.front(); }
  trace::trace const& facts() const noexcept { return parts_.facts; }
  block::table const& model() const noexcept { return model_; }

 private:
  friend pending_step;

  model::job const& job() const noexcept { return parts_.facts.job; }
  model::parameter const& parameter(parameter_id id) const {
    PROTRAIN_EXPECT(id.index() < parts_.facts.parameters.size(), "engine: no such parameter");
    return parts_.facts.parameters[id.index()];
  }
  detail::bases bases() const { return {device_.base(space::device), device_.base(space::host)}; }

  // --- a segment ---------------------------------------------------------------------------------

  void check_usable() {
    if (failed_) {
      throw engine_error(
          "the engine failed during an update: initialise it again or make a new one");
    }
    guarded([&] { agreement_.reach(comm_); });
  }

  void load_batch(batch const& data, std::uint64_t first, std::uint64_t count, std::uint64_t of) {
    if (parts_.facts.batch.value > 0) {
      std::byte* const into = storage_.cell(storage_.homes().host_batch);
      detail::copy_micro_batches(data, model_, {first, count, of}, into, parts_.facts.batch.value);
    }
  }

  void prepare(batch const& data, step_options const& options) {
    load_batch(data, 0, job().accumulate, job().accumulate);
    weight_ = comm_.sum(data.targets());
    auto const t = static_cast<std::int64_t>(applied_ + 1);
    executor_.begin_step(
        rule_, options.learning_rate, t, loss_scale(weight_, job().loss_scale), attempted_);
    if (storage_.homes().host_scalars.valid() && !needs_norm(job())) {
      detail::update_scalars const scalars;
      std::memcpy(storage_.cell(storage_.homes().host_scalars), &scalars, sizeof scalars);
    }
    ++attempted_;
  }

  /// All programs of a step one after the other; the last one runs on.
  void run_step() {
    using schedule::segment;
    start_ = device_.seconds();
    detail::loaded_segment<Device>& begins =
        left_over_ ? segments_.either(segment::resume, segment::first_resumed)
                   : segments_.either(segment::step, segment::first);
    start(begins);
    if (schedule::whole(begins.program->part)) {
      return;
    }
    wait();
    if (detail::loaded_segment<Device>* const middle = segments_.find(segment::middle)) {
      for (std::uint32_t n = 0; n < middle->program->times; ++n) {
        start(*middle, n);
        wait();
      }
    }
    start(segments_.either(segment::last, segment::last));
  }

  /// Submits a segment; where it repeats, for the `nth` time.
  void start(detail::loaded_segment<Device>& what, std::uint32_t nth = 0) {
    running_ = &what;
    segments_.count(what);
    what.bind.begin(*what.program,
                    what.program->before + std::uint64_t{nth} * what.program->micro_batches);
    executor_.begin(*what.program, what.bind);
    watch_.begin();
    segments_.submit(what, {&engine::run_task, this, 0});
  }

  /// Waits for the running segment's end.
  void wait() {
    watch_.wait(*running_->program, parts_.facts);
    running_->memory.finish();
    device_.reset_events();
    left_over_ = left_over_ && !schedule::resumes(running_->program->part);
    running_ = nullptr;
  }

  /// Waits for the running step, if there is one; its results are of no interest.
  void drop_running() {
    if (running_ != nullptr) {
      guarded([&] { wait(); });
    }
  }

  /// The end of the running step, if there is one.
  void finish() {
    if (running_ == nullptr || hangs()) {
      return;
    }
    drop_running();
    step_result const r = answer();
    results_.add(r);
    applied_ += r.skipped ? 0U : 1U;
    left_over_ = deferred_ > 0;
    executor_.leave_over();
  }

  step_result result_of(std::uint64_t step) {
    if (step == attempted_) {
      finish();
    }
    if (step > attempted_) {
      throw engine_error("step " + std::to_string(step) + " failed: it has no result");
    }
    return results_.of(step);
  }

  /// Cleans up after what doesn't get to its end, and throws on.
  template <class Work>
  auto guarded(Work const& work) {
    try {
      return work();
    } catch (...) {
      abandon();
      throw;
    }
  }

  /// In a handler. What was submitted is waited for, so that nothing touches memory that is handed
  /// out again; a retry of the step then has the same bits.
  void abandon() noexcept {
    detail::abort_for_exception(comm_);
    bool const hung = hangs();  // it failed before, and is over now
    bool const over = watch_.settle();
    if (running_ == nullptr) {
      device_.reset_events();
      failed_ = failed_ || comm_.size() > 1;
      return;
    }
    attempted_ -= !hung && schedule::trains(running_->program->part) ? 1U : 0U;
    if (!over) {
      failed_ = true;
      return;
    }
    device_.reset_events();
    running_->memory.abandon();
    bool const untouched = executor_.left_started() == 0;
    bool const carried_out = executor_.left_done() == deferred_;
    failed_ =
        hung || comm_.size() > 1 || executor_.own_updates() > 0 || (!untouched && !carried_out);
    left_over_ = left_over_ && untouched;
    running_ = nullptr;
  }

  step_result answer() {
    losses_.clear();
    add_losses(losses_, storage_.losses(), job().accumulate, comm_.size(), job().micro_batch);
    norm_report report;
    std::memcpy(&report, storage_.cell(storage_.homes().report), sizeof report);
    return {.step = attempted_,
            .loss = mean_loss(losses_, weight_),
            .grad_norm = report.norm,
            .grad_norm_clipped = report.norm * report.clip_factor,
            .tokens = model::tokens_per_step(job()),
            .seconds = device_.seconds() - start_,
            .finite = report.non_finite == 0,
            .skipped = job().skip && report.non_finite != 0};
  }

  static void run_task(void* self, std::uint32_t index, device::queue_ref queue) {
    auto& own = *static_cast<engine*>(self);
    own.watch_.run(own.executor_, *own.running_->program, own.parts_.facts, index, queue);
  }

  Device& device_;
  Comm& comm_;
  block::table model_;
  plan_parts parts_;
  detail::agreement agreement_;
  Rule rule_;
  update::state_bytes bytes_;
  detail::segments<Device> segments_;
  detail::storage<Device, Comm> storage_;
  detail::executor<Device, Comm, Rule> executor_;
  detail::watch<Device, Comm> watch_;

  detail::loaded_segment<Device>* running_ = nullptr;
  double start_ = 0;
  detail::recent_results results_{};
  std::vector<float> losses_{};  ///< of the last step, in global sample order
  std::uint64_t weight_ = 0;     ///< target tokens of the running step, over all ranks
  std::uint64_t attempted_ = 0;  ///< steps that were started and didn't fail, skipped ones too
  std::uint64_t applied_ = 0;    ///< of those, not skipped
  bool left_over_ = false;       ///< updates wait for the next segment
  std::uint32_t deferred_ = 0;   ///< chunks whose updates a step leaves over
  bool failed_ = false;
};

}  // namespace protrain::inline v0::runtime
