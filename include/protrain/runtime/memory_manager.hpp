// SPDX-License-Identifier: Apache-2.0
#pragma once
// The whole composition in one type: trace of a model, search for a plan, engine that carries it
// out. Its parts stay usable alone.

#include "protrain/block/entry.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/comm/communicator.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/device/device.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/cpu_threads.hpp"
#include "protrain/runtime/detail/requirements.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/trace/trace.hpp"

#include <concepts>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// No plan fits the budget, or the job is refused; `what()` is the explanation.
class infeasible_error : public engine_error {
 public:
  explicit infeasible_error(plan::infeasible why)
      : engine_error("no plan: " + std::string(why.explanation().view())), why_(std::move(why)) {}

  plan::infeasible const& why() const noexcept { return why_; }

 private:
  plan::infeasible why_;
};

namespace detail {

/// Keeps a stack alive that was handed over; one that the caller keeps isn't copied.
template <class... Items>
std::shared_ptr<void const> owner_of(block::stack<Items...>&& model) {
  return std::make_shared<block::stack<Items...>>(std::move(model));
}
template <class... Items>
std::shared_ptr<void const> owner_of(block::stack<Items...> const& /*model*/) {
  return nullptr;
}

/// A model as a manager needs it.
struct described {
  block::table table{};
  trace::trace facts{};
  std::shared_ptr<void const> kept{};  // null: the caller keeps the stack
};

/// A dry run's trace, with times from `machine`'s rates.
template <class Model>
described describe(Model&& model, model::job const& job, hw::machine const& machine) {
  static_assert(can_manage<Model>());
  described out{.table = model.entries(job)};
  out.facts = profile::dry_run(out.table, job, machine);
  out.kept = owner_of(std::forward<Model>(model));
  return out;
}
template <class Model>
described describe(Model&& model, trace::trace facts) {
  static_assert(can_manage<Model>());
  described out{.table = model.entries(facts.job), .facts = std::move(facts)};
  out.kept = owner_of(std::forward<Model>(model));
  return out;
}

/// Where a manager keeps a communicator that nobody gave it.
template <class Comm>
struct own_comm {};
template <>
struct own_comm<comm::self> {
  comm::self value{};
};

template <class Policies>
plan_parts parts_of(plan::plan const& p, Policies const& rules) {
  auto programs = p.segments(rules.eviction);
  if (!programs) {
    throw engine_error(std::string("the plan doesn't compile: ") + programs.failure().what);
  }
  return {p.trace, p.layout, std::move(*programs)};
}

}  // namespace detail

/// Trains one model within a budget: takes its trace, finds the fastest plan that fits, and runs
/// it. Device, communicator and machine policies as for the parts; a stack that is passed as an
/// rvalue is owned, another one must outlive the manager. Not copyable, not movable; one thread
/// calls it. Throws `infeasible_error` where nothing fits (`try_make` answers instead), and what
/// the engine's constructor throws.
///
///     memory_manager manager{device, model, job, machine, {.gpu = 24_GiB, .host = 100_GiB}};
template <class Device,
          class Policies = plan::policies<>,
          class Comm = comm::self,
          class Rule = optim::adamw>
class memory_manager {
  static_assert(plan::require_bundle<Policies>());

 public:
  using engine_type = runtime::engine<Device, Comm, Rule>;
  using pending_step = typename engine_type::pending_step;

  /// One rank; the trace is a dry run of `model`, with times from `machine`'s rates.
  template <class Model>
    requires std::same_as<Comm, comm::self>
  memory_manager(Device& device,
                 Model&& model,
                 model::job const& job,
                 hw::machine const& machine,
                 plan::budget const& budget,
                 Policies const& rules = {},
                 Rule rule = {},
                 engine_options const& options = {})
      : memory_manager(device,
                       nullptr,
                       detail::describe(std::forward<Model>(model), job, machine),
                       machine,
                       budget,
                       rules,
                       std::move(rule),
                       options) {}

  /// As one rank of `comm`. Every rank finds the same plan, since equal inputs give equal answers.
  template <class Model>
  memory_manager(Device& device,
                 Comm& comm,
                 Model&& model,
                 model::job const& job,
                 hw::machine const& machine,
                 plan::budget const& budget,
                 Policies const& rules = {},
                 Rule rule = {},
                 engine_options const& options = {})
      : memory_manager(device,
                       &comm,
                       detail::describe(std::forward<Model>(model), job, machine),
                       machine,
                       budget,
                       rules,
                       std::move(rule),
                       options) {}

  /// From a trace of `model` that exists already, measured or read from a file; the job is its:
  /// `{device, model, profile::measure(device, model, job, batch), machine, budget}`.
  template <class Model>
    requires std::same_as<Comm, comm::self>
  memory_manager(Device& device,
                 Model&& model,
                 trace::trace facts,
                 hw::machine const& machine,
                 plan::budget const& budget,
                 Policies const& rules = {},
                 Rule rule = {},
                 engine_options const& options = {})
      : memory_manager(device,
                       nullptr,
                       detail::describe(std::forward<Model>(model), std::move(facts)),
                       machine,
                       budget,
                       rules,
                       std::move(rule),
                       options) {}

  /// As one rank of `comm`. Every rank needs the same trace (profile::agree).
  template <class Model>
  memory_manager(Device& device,
                 Comm& comm,
                 Model&& model,
                 trace::trace facts,
                 hw::machine const& machine,
                 plan::budget const& budget,
                 Policies const& rules = {},
                 Rule rule = {},
                 engine_options const& options = {})
      : memory_manager(device,
                       &comm,
                       detail::describe(std::forward<Model>(model), std::move(facts)),
                       machine,
                       budget,
                       rules,
                       std::move(rule),
                       options) {}

  memory_manager(memory_manager const&) = delete;
  memory_manager& operator=(memory_manager const&) = delete;
  ~memory_manager() = default;

  /// As the constructor with the same arguments, or why there is no plan. Everything else that goes
  /// wrong is thrown.
  template <class... Arguments>
    requires std::constructible_from<memory_manager, Device&, Arguments...>
  static result<std::unique_ptr<memory_manager>, plan::infeasible> try_make(
      Device& device, Arguments&&... arguments) {
    try {
      return std::make_unique<memory_manager>(device, std::forward<Arguments>(arguments)...);
    } catch (infeasible_error const& e) {
      return e.why();
    }
  }

  plan::plan const& plan() const noexcept { return plan_; }
  trace::trace const& trace() const noexcept { return plan_.trace; }
  engine_type& engine() noexcept { return engine_; }
  engine_type const& engine() const noexcept { return engine_; }

  /// The engine's functions of the same names.
  template <class Load>
  void initialise(Load const& load) {
    engine_.initialise(load);
  }
  pending_step step(batch const& data, step_options const& options = {}) {
    return engine_.step(data, options);
  }
  float evaluate(batch const& data) { return engine_.evaluate(data); }
  void flush() { engine_.flush(); }
  std::vector<float> read(parameter_id id) { return engine_.read(id); }
  template <class See>
  void visit(See const& see) {
    engine_.visit(see);
  }
  device::usage measured(space s) const { return engine_.measured(s); }
  schedule::memory_report predicted(space s) const { return engine_.predicted(s); }

 private:
  memory_manager(Device& device,
                 Comm* comm,
                 detail::described model,
                 hw::machine const& machine,
                 plan::budget const& budget,
                 Policies const& rules,
                 Rule rule,
                 engine_options const& options)
      : kept_(std::move(model.kept)),
        plan_(found(plan::search(model.facts, machine, budget, rules))),
        engine_(device,
                comm_or_own(comm),
                std::move(model.table),
                detail::parts_of(plan_, rules),
                std::move(rule),
                options) {}

  static plan::plan found(result<plan::plan, plan::infeasible> answer) {
    if (!answer) {
      throw infeasible_error(answer.failure());
    }
    return std::move(*answer);
  }

  Comm& comm_or_own(Comm* given) {
    if constexpr (std::same_as<Comm, comm::self>) {
      return given == nullptr ? own_.value : *given;
    } else {
      return *given;
    }
  }

  std::shared_ptr<void const> kept_;  // the stack, if it was handed over
  [[no_unique_address]] detail::own_comm<Comm> own_{};
  plan::plan plan_;
  engine_type engine_;
};

}  // namespace protrain::inline v0::runtime

namespace protrain::inline v0 {
using runtime::memory_manager;
}  // namespace protrain::inline v0
