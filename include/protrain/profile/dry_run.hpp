// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trace of a model without running a kernel or touching memory: exact bytes, and times either
// none or by one constant.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile {

/// Floating-point operations of a block's forward: what it said, else two per token and element of
/// each parameter with at least two extents.
inline std::uint64_t forward_flops(block::block_entry const& e, model::job const& job) {
  if (e.flops) {
    return *e.flops;
  }
  std::uint64_t elements = 0;
  for (block::entry_parameter const& p : e.parameters) {
    elements = checked_add(elements, p.facts.shape.rank >= 2 ? p.facts.shape.elements() : 0);
  }
  return checked_mul(checked_mul(2, elements), checked_mul(job.micro_batch, job.sequence));
}

namespace detail {

inline trace::block_shape make_shape(block::block_entry const& e,
                                     block::memory_need const& need,
                                     model::job const& job) {
  trace::block_shape out{.name = text(e.shape_name),
                         .pinned = e.pinned,
                         .input = {model::guarded(job, e.input.bytes())},
                         .output = {model::guarded(job, e.output.bytes())},
                         .saved = {need.saved},
                         .scratch_forward = {need.scratch_forward},
                         .scratch_backward = {need.scratch_backward},
                         .reads_input = e.reads_input};
  for (std::size_t k = 0; k < need.levels.size(); ++k) {
    block::level_need const& level = need.levels[k];
    out.levels.push_back({.name = text(e.levels[k].name),
                          .saved = {level.saved},
                          .rebuilt = {level.dropped},
                          .scratch = {level.scratch},
                          .reads_input = e.levels[k].reads_input});
  }
  for (block::operator_need const& o : need.operators) {
    out.operators.push_back({.name = text(o.name),
                             .scratch_peak = {o.scratch},
                             .saved = {o.saved},
                             .delta_before = {o.before}});
  }
  return out;
}

/// One forward rate for everything; a backward is two forwards. A rebuild does what its block said,
/// or all of a forward, and at least reads and writes as much memory as was dropped.
inline void add_times(trace::block_shape& shape,
                      block::block_entry const& e,
                      model::job const& job,
                      hw::machine const& machine) {
  std::uint64_t const flops = forward_flops(e, job);
  flop_rate const rate = hw::compute_rate(machine, job.type);
  shape.forward = time_of(flops, rate);
  shape.backward = shape.forward * 2;
  for (std::size_t k = 0; k < shape.levels.size(); ++k) {
    picoseconds const compute = time_of(e.levels[k].flops.value_or(flops), rate);
    std::uint64_t const moved = checked_mul(2, shape.levels[k].rebuilt.value);
    bool const known = machine.device_bandwidth.per_second > 0;
    picoseconds const copy = known ? time_of(moved, machine.device_bandwidth) : picoseconds{};
    shape.levels[k].rebuild = std::max(compute, copy);
  }
}

inline trace::trace dry_run(block::table const& t,
                            model::job const& job,
                            hw::machine const* machine) {
  trace::trace out{.from = trace::source::dry_run, .job = job, .parameters = t.parameters};
  std::vector<std::uint32_t> origins{};  // by shape: block_entry::shape
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    block::block_entry const& e = t.blocks[b];
    trace::block_shape shape = make_shape(e, block::dry_pass(e, job, make_id<block_id>(b)), job);
    if (machine != nullptr) {
      add_times(shape, e, job, *machine);
    }
    // Layers of one description may still differ by what they make of scope::layer.
    std::size_t at = 0;
    while (at < out.shapes.size() && (origins[at] != e.shape || out.shapes[at] != shape)) {
      ++at;
    }
    if (at == out.shapes.size()) {
      out.shapes.push_back(std::move(shape));
      origins.push_back(e.shape);
    }
    out.blocks.push_back(make_id<shape_id>(at));
  }
  for (block::batch_tensor const& b : t.batch) {
    out.batch += bytes{granules(b.facts.bytes())};
  }
  return out;
}

}  // namespace detail

/// The facts of a table's blocks; times are 0. Throws what the blocks throw.
inline trace::trace dry_run(block::table const& t, model::job const& job) {
  return detail::dry_run(t, job, nullptr);
}

/// With times from `machine`'s dense rate for the job's dtype, which must be positive.
inline trace::trace dry_run(block::table const& t,
                            model::job const& job,
                            hw::machine const& machine) {
  return detail::dry_run(t, job, &machine);
}

/// As above, for a model that has no table yet.
template <class... Items>
trace::trace dry_run(block::stack<Items...> const& model, model::job const& job) {
  return dry_run(model.entries(job), job);
}
template <class... Items>
trace::trace dry_run(block::stack<Items...> const& model,
                     model::job const& job,
                     hw::machine const& machine) {
  return dry_run(model.entries(job), job, machine);
}

}  // namespace protrain::inline v0::profile
