// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model whose blocks compute nothing and take as long as they are told, and what the simulation
// says of its steps.

#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/sim/whole_step.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::bench {

/// Bytes of a micro-batch's only batch tensor, "tokens".
inline constexpr std::uint64_t waiting_batch_bytes = 256;

struct pass_times {
  picoseconds forward{};
  picoseconds backward{};
};

/// Elements of each block's tensors, and times. Few elements, so that what the library itself
/// computes takes no time beside a pass.
struct waiting_config {
  std::int64_t layers = 1;
  std::uint64_t parameters = 1;
  std::uint64_t boundary = 1;
  std::uint64_t saved = 1;
  pass_times ends{};  ///< of the first and the last block
  pass_times layer{};
};

/// Device: one that can hold, `device/host` or what is derived from it.
template <class Device>
class waiting_block {
 public:
  enum class place : std::uint8_t { first, middle, last };

  waiting_block(Device& device, waiting_config const& c, place where)
      : device_(&device),
        config_(c),
        times_(where == place::middle ? c.layer : c.ends),
        where_(where) {}

  void describe(block_builder& b) const {
    b.name(where_ == place::first ? "first" : "last");
    b.parameter(where_ == place::last ? "v" : "w", {config_.parameters});
    if (where_ == place::first) {
      b.batch("tokens", dtype::u8, {waiting_batch_bytes});
    } else {
      b.input({config_.boundary});
    }
    if (where_ != place::last) {
      b.output({config_.boundary});
    }
  }
  void forward(scope& s, tensor_view, tensor_view) const {
    s.save("kept", dtype::f32, {config_.saved});
    s.run([&](device::queue_ref q) { device_->hold(q, times_.forward); });
  }
  /// Gradients are zero on entry and stay so.
  void backward(scope& s, tensor_view, tensor_view, tensor_view) const {
    s.run([&](device::queue_ref q) { device_->hold(q, times_.backward); });
  }

 private:
  Device* device_;
  waiting_config config_;
  pass_times times_;
  place where_;
};

/// `layers` blocks between a first and a last one; the device must outlive it.
template <class Device>
auto waiting_model(Device& device, waiting_config const& c) {
  using block = waiting_block<Device>;
  return stack{block(device, c, block::place::first),
               repeat(c.layers, block(device, c, block::place::middle)),
               block(device, c, block::place::last)};
}

/// Bytes of a dry run, times as the blocks are told.
template <class Model>
trace::trace waiting_trace(Model const& model, model::job const& job, waiting_config const& c) {
  trace::trace out = profile::dry_run(model, job);
  for (std::size_t b = 0; b < out.blocks.size(); ++b) {
    bool const end = b == 0 || b + 1 == out.blocks.size();
    trace::block_shape& shape = out.shapes[out.blocks[b].index()];
    shape.forward = (end ? c.ends : c.layer).forward;
    shape.backward = (end ? c.ends : c.layer).backward;
  }
  return out;
}

/// The programs of one step: one that begins with what the step before left over, or a first one.
inline std::vector<schedule::program> step_of(plan::plan const& p, bool resumed) {
  auto programs = schedule::compile_step(
      p.trace, p.layout, p.knobs, chunk::execution_order{}, resumed && p.at.defer > 0);
  PROTRAIN_EXPECT(programs.has_value(), "a plan compiles");
  return *std::move(programs);
}

/// Under the default bandwidth policy.
inline sim::timeline timeline_of(schedule::program const& p,
                                 trace::trace const& facts,
                                 hw::machine const& m) {
  sim::pace const pace(m, plan::policies<>{}.bandwidth, facts.job.world);
  return sim::simulate(p, sim::durations_of(p, facts, pace), pace);
}

inline picoseconds simulated(std::vector<schedule::program> const& step,
                             trace::trace const& facts,
                             hw::machine const& m) {
  sim::whole_step out;
  for (schedule::program const& p : step) {
    out.add(timeline_of(p, facts, m), p.times);
  }
  return out.iteration;
}

}  // namespace protrain::bench
