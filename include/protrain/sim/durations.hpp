// SPDX-License-Identifier: Apache-2.0
#pragma once
// How long each instruction of a program takes: compute from the trace, everything else from the
// bytes its operands move at the machine's rates.

#include "protrain/core/units.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::sim {

namespace detail {

/// Bytes that an instruction reads plus bytes that it writes.
constexpr std::uint64_t traffic(schedule::program const& p, schedule::instruction const& i) {
  std::uint64_t sum = 0;
  for (schedule::operand const& o : p.operands_of(i)) {
    std::uint64_t const passes =
        (schedule::reads(o.mode) ? 1U : 0U) + (schedule::writes(o.mode) ? 1U : 0U);
    sum = checked_add(sum, checked_mul(o.bytes, passes));
  }
  return sum;
}

constexpr picoseconds memory_bound(cost::rates const& r,
                                   schedule::program const& p,
                                   schedule::instruction const& i) {
  std::uint64_t const bytes = traffic(p, i);
  return i.queue == queue_id::cpu ? cost::host_time(r, bytes) : cost::device_time(r, bytes);
}

}  // namespace detail

/// Time of one instruction when its channel is its own.
constexpr picoseconds duration_of(schedule::program const& p,
                                  schedule::instruction const& i,
                                  trace::trace const& t,
                                  cost::rates const& r) {
  using schedule::opcode;
  switch (i.op) {
    case opcode::forward:
    case opcode::recompute:
      return t.shape(i.block).forward;
    case opcode::rebuild:
      return t.shape(i.block).levels[i.level - 1].rebuild;
    case opcode::backward:
      return t.shape(i.block).backward;
    case opcode::batch_load:
    case opcode::upload:
    case opcode::swap_in:
    case opcode::scalars_upload:
    case opcode::state_in:
      return cost::upload_time(r, i.amount);
    case opcode::swap_out:
    case opcode::offload:
    case opcode::norm_read:
    case opcode::loss_read:
    case opcode::state_out:
      return cost::download_time(r, i.amount);
    case opcode::gather:
    case opcode::reduce:
    case opcode::norm_exchange:
    case opcode::loss_exchange:
      return cost::collective_time(r, t.job, i.amount);
    case opcode::zero:
    case opcode::accumulate:
    case opcode::norm_partial:
    case opcode::norm_finish:
    case opcode::update:
    case opcode::update_part:
      return detail::memory_bound(r, p, i);
  }
  return {};
}

namespace detail {

constexpr std::vector<picoseconds> durations_at(schedule::program const& p,
                                                trace::trace const& t,
                                                cost::rates const& r) {
  std::vector<picoseconds> out{};
  out.reserve(p.instructions.size());
  for (schedule::instruction const& i : p.instructions) {
    out.push_back(duration_of(p, i, t, r));
  }
  return out;
}

}  // namespace detail

/// Durations by instruction that runs alone, on one of the job's ranks. With `link::fixed` they are
/// what it takes whatever else runs; what a policy that knows contention makes of them says a
/// simulation at its pace. O(operands).
template <link::bandwidth_policy B = link::fixed>
constexpr std::vector<picoseconds> durations_of(schedule::program const& p,
                                                trace::trace const& t,
                                                hw::machine const& m,
                                                B const& policy = {}) {
  return detail::durations_at(p, t, cost::rates_of(m, policy, t.job.world));
}

/// Likewise, for a simulation at this pace.
constexpr std::vector<picoseconds> durations_of(schedule::program const& p,
                                                trace::trace const& t,
                                                pace const& speeds) {
  return detail::durations_at(p, t, speeds.rates());
}

}  // namespace protrain::inline v0::sim
