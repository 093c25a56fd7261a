// SPDX-License-Identifier: Apache-2.0
#pragma once
// The proof that a program trains the job: no race, no memory handed out twice, every pass finds
// its bytes, every gradient is counted once.

#include "protrain/schedule/detail/verify_ends.hpp"
#include "protrain/schedule/detail/verify_machine.hpp"
#include "protrain/schedule/detail/verify_memory.hpp"
#include "protrain/schedule/detail/verify_passes.hpp"
#include "protrain/schedule/detail/verify_races.hpp"
#include "protrain/schedule/detail/verify_segments.hpp"
#include "protrain/schedule/detail/verify_spans.hpp"
#include "protrain/schedule/detail/verify_states.hpp"
#include "protrain/schedule/detail/verify_streams.hpp"
#include "protrain/schedule/detail/verify_tables.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace protrain::inline v0::schedule {

namespace detail {

constexpr verdict run_one(machine& m, std::uint32_t at) {
  operands o(m, at);
  switch (o.i.op) {
    case opcode::batch_load:
      run_batch_load(o);
      break;
    case opcode::zero:
      run_zero(o);
      break;
    case opcode::upload:
      run_upload(o);
      break;
    case opcode::gather:
      run_gather(o);
      break;
    case opcode::forward:
      run_forward(o);
      break;
    case opcode::recompute:
      run_recompute(o);
      break;
    case opcode::rebuild:
      run_rebuild(o);
      break;
    case opcode::backward:
      run_backward(o);
      break;
    case opcode::swap_out:
      run_swap(o, space::device, space::host);
      break;
    case opcode::swap_in:
      run_swap(o, space::host, space::device);
      break;
    case opcode::reduce:
      run_reduce(o);
      break;
    case opcode::offload:
      run_offload(o);
      break;
    case opcode::accumulate:
      run_accumulate(o);
      break;
    case opcode::norm_partial:
      run_norm_partial(o);
      break;
    case opcode::norm_read:
      run_norm_read(o);
      break;
    case opcode::norm_exchange:
      run_norm_exchange(o);
      break;
    case opcode::norm_finish:
      run_norm_finish(o);
      break;
    case opcode::scalars_upload:
      run_scalars_upload(o);
      break;
    case opcode::update:
      run_update(o);
      break;
    case opcode::state_in:
      run_state_in(o);
      break;
    case opcode::update_part:
      run_update_part(o);
      break;
    case opcode::state_out:
      run_state_out(o);
      break;
    case opcode::loss_read:
      run_loss_read(o);
      break;
    case opcode::loss_exchange:
      run_loss_exchange(o);
      break;
  }
  return o.bad;
}

constexpr verdict check_meaning(program const& p,
                                trace::trace const& t,
                                chunk::layout const& l,
                                update::state_bytes bytes,
                                std::uint64_t rank) {
  span_index spans = span_checker(p, t, l).run();
  if (!spans.valid) {
    return spans.valid;
  }
  machine m(p, t, l, bytes, std::move(spans), rank);
  if (verdict const v = place_homes(m); !v) {
    return v;
  }
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    if (verdict const v = run_one(m, i); !v) {
      return v;
    }
  }
  return check_end(m);
}

/// What depends on order: of a program without strides that runs once.
constexpr verdict check_run(program const& p,
                            trace::trace const& t,
                            chunk::layout const& l,
                            update::state_bytes bytes,
                            std::uint64_t rank) {
  clocks const order(p);
  if (verdict const v = check_races(p, order); !v) {
    return v;
  }
  return check_meaning(p, t, l, bytes, rank);
}

}  // namespace detail

/// Proves that `p` is the segment of `t` with layout `l` that it says it is, or says why not. Shares
/// no code with compile. O(n log n) in instructions and operands; constant-evaluable.
///
/// The argument:
/// 1. Every dependency points back, and queues run in program order, so program order is one of
///    the orders that a device may choose: nothing waits for ever. Happens-before is the closure of
///    dependencies and queue order; vector clocks (latest known position of each queue) are exact
///    for it.
/// 2. For every byte of both spaces, each access happens after every earlier access that it
///    conflicts with. It is enough to look at the last writer and, by queue, the last reader since:
///    whoever was before them is ordered before them. So in every order that a device may choose,
///    each read sees the write that it sees in program order. Addresses are used here, not
///    allocations: reuse of a range is covered.
/// 3. Allocations that are live at one position never overlap, and operands lie in live
///    allocations. Hence a write through one allocation never changes the contents of another that
///    is still read, and contents may be tracked by allocation and byte range.
/// 4. By 2 the meaning of the program is that of running it in program order. It is run once on
///    symbolic contents, which name what the bytes are (chunk and version, block and micro-batch,
///    contribution and how far it got). Undefined bytes have no name, and no instruction accepts
///    them; a partial or misplaced write leaves undefined bytes. Operands have exactly the
///    documented roles, sizes, spaces and modes.
///    A streamed chunk's home is split into parts when the first of them comes back, and a whole
///    again when the last does: between the two nobody finds the chunk there.
/// 5. At the end each block ran forward and, in a step, backward once per micro-batch. Each trained
///    chunk's value and state were updated once, from all of its contributions in the required
///    order, and lie where the next segment looks for them; where the update is left to the next
///    step, the whole gradient and the scalars do. Frozen chunks are as before; the caller's
///    batches, scalars, losses and report lie where it looks, in memory without another use.
/// 6. Extents are within the budgets, in bytes, and what isn't carried was given back.
/// 7. A segment starts from one of these states and ends in one of them (see `segment`): nothing
///    left over, everything deferred left over, or so many micro-batches of a step done, whose
///    sums are in the stores. It waits for all queues at its end, and segments that
///    verify_segments accepts agree on what is deferred, where carried memory lies, and where a
///    step is cut. By induction every run in which each segment starts where the one before ended
///    is right. One that repeats is proven for its first and its last time: only the caller's
///    batches and losses, carried and of no other use in any segment, advance from one time to the
///    next, evenly, and with them the counts of what is summed.
/// 8. A program is the same value on every rank, so all ranks issue the same collectives in the
///    same order; operands with a stride are looked at as `rank` sees them. That the ranks do run
///    the same programs is for them to find out (`digest`).
/// What instructions do inside their operands is the device's, the communicator's and the block
/// law's part.
constexpr verdict verify(program const& all_ranks,
                         trace::trace const& t,
                         chunk::layout const& l,
                         std::uint64_t device_budget = std::numeric_limits<std::uint64_t>::max(),
                         std::uint64_t host_budget = std::numeric_limits<std::uint64_t>::max(),
                         std::uint64_t rank = 0) {
  if (verdict const v = detail::check_head(all_ranks, t, l, rank); !v) {
    return v;
  }
  auto const bytes = update::bytes_of(t.job);
  if (!bytes) {
    return reject(rejection::malformed, "dtype and state format don't go together");
  }
  if (verdict const v = detail::check_trace(t); !v) {
    return v;
  }
  if (verdict const v = detail::check_layout(t, l); !v) {
    return v;
  }
  if (verdict const v = detail::check_memory(all_ranks, device_budget, host_budget); !v) {
    return v;
  }
  if (verdict const v = detail::check_instructions(all_ranks); !v) {
    return v;
  }
  if (verdict const v = detail::check_taking_order(all_ranks); !v) {
    return v;
  }
  if (all_ranks.ranks == 1 && all_ranks.before == 0 && all_ranks.times == 1) {
    return detail::check_run(all_ranks, t, l, *bytes, rank);  // it is what the only rank sees
  }
  for (std::uint32_t const nth : {0U, all_ranks.times - 1}) {
    program const p = detail::seen_by(all_ranks, rank, nth);
    if (verdict const v = detail::check_run(p, t, l, *bytes, rank); !v) {
      return v;
    }
    if (all_ranks.times == 1) {
      break;
    }
  }
  return {};
}

/// Proves that each of `all` is sound and that they may follow each other: they defer the same
/// chunks, and carried memory lies at the same places. The first objection's segment is in
/// `which`, if given.
constexpr verdict verify_segments(
    std::span<program const> all,
    trace::trace const& t,
    chunk::layout const& l,
    std::uint64_t device_budget = std::numeric_limits<std::uint64_t>::max(),
    std::uint64_t host_budget = std::numeric_limits<std::uint64_t>::max(),
    std::uint64_t rank = 0,
    segment* which = nullptr) {
  for (program const& p : all) {
    if (which != nullptr) {
      *which = p.part;
    }
    if (verdict const v = verify(p, t, l, device_budget, host_budget, rank); !v) {
      return v;
    }
    if (verdict const v = detail::check_same_carried(all.front(), p); !v) {
      return v;
    }
  }
  if (verdict const v = detail::check_caller(all); !v) {
    return v;
  }
  return detail::check_composition(all, t.job.accumulate);
}

}  // namespace protrain::inline v0::schedule
