// SPDX-License-Identifier: Apache-2.0
#pragma once
// The proof that a program trains the job: no race, no memory handed out twice, every pass finds
// its bytes, every gradient is counted once.

#include "protrain/schedule/detail/verify_machine.hpp"
#include "protrain/schedule/detail/verify_memory.hpp"
#include "protrain/schedule/detail/verify_passes.hpp"
#include "protrain/schedule/detail/verify_races.hpp"
#include "protrain/schedule/detail/verify_spans.hpp"
#include "protrain/schedule/detail/verify_states.hpp"
#include "protrain/schedule/detail/verify_tables.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

namespace protrain::inline v0::schedule {

namespace detail {

/// What is there before a step: carried values and states, each chunk's once, together.
constexpr verdict place_homes(machine& m) {
  for (std::uint32_t a = 0; a < m.p.allocations.size(); ++a) {
    allocation const& home = m.p.allocations[a];
    bool const value = home.what == category::parameters;
    if (!home.carried || (!value && home.what != category::optimizer)) {
      continue;
    }
    chunk_id const c = home.chunk;
    if (c.index() >= m.l.chunks.size() || m.l[c].elements == 0 ||
        home.bytes != (value ? m.value_bytes(c) : m.state_bytes(c)) ||
        (!value && !m.l[c].trainable) || (value ? m.values : m.states)[c.index()] != 0) {
      return reject(rejection::malformed, "a wrong home of a chunk", home.begin, a);
    }
    (value ? m.values : m.states)[c.index()] = a + 1;
    m.memory.set({.allocation = {a}, .bytes = home.bytes},
                 {.what = value ? holds::value : holds::state, .of = c.value});
  }
  for (std::uint32_t c = 0; c < m.l.chunks.size(); ++c) {
    bool const needed = m.l.chunks[c].elements > 0;
    bool const fits =
        !needed ||
        (m.values[c] != 0 && (!m.l.chunks[c].trainable ||
                              (m.states[c] != 0 && m.p.allocations[m.values[c] - 1].where ==
                                                       m.p.allocations[m.states[c] - 1].where)));
    if (!fits) {
      return reject(rejection::malformed, "a chunk without a home", verdict::nowhere, c);
    }
  }
  return {};
}

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
      o.fail(rejection::malformed, "a gather in a program of one rank");
      break;
    case opcode::forward:
      run_forward(o);
      break;
    case opcode::recompute:
      run_recompute(o);
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
    case opcode::norm_finish:
      run_norm_finish(o);
      break;
    case opcode::scalars_upload:
      run_scalars_upload(o);
      break;
    case opcode::update:
      run_update(o);
      break;
    case opcode::loss_read:
      run_loss_read(o);
      break;
  }
  return o.bad;
}

/// True when operand `at` - 1, which the caller reads, holds `want`.
constexpr bool result_is(machine const& m, std::uint32_t at, content const& want) {
  return at != 0 && m.memory.get(m.p.operands[at - 1]) == want;
}

/// Memory that the caller uses has no other use.
constexpr verdict check_shared(machine const& m) {
  constexpr std::array<role, 4> roles{role::batch, role::scalars, role::loss, role::report};
  for (operand const& o : m.p.operands) {
    for (std::size_t k = 0; k < roles.size(); ++k) {
      if (m.shared[k] == o.allocation.value + 1 && o.what != roles[k]) {
        return reject(rejection::malformed,
                      "memory of the caller's has another use",
                      verdict::nowhere,
                      o.allocation.index());
      }
    }
  }
  return {};
}

/// After the last instruction: everything ran, every chunk is where it was, one version later if
/// it trains, and the caller finds losses and report.
constexpr verdict check_end(machine const& m) {
  for (std::size_t b = 0; b < m.t.blocks.size(); ++b) {
    if (m.forwards[b] != m.p.micro_batches || m.backwards[b] != m.p.micro_batches) {
      return reject(rejection::missing_pass, "a block misses a pass", verdict::nowhere, b);
    }
  }
  for (std::size_t c = 0; c < m.l.chunks.size(); ++c) {
    if (m.l.chunks[c].elements == 0) {
      continue;
    }
    std::uint32_t const version = m.l.chunks[c].trainable ? 1 : 0;
    if (m.updates[c] != version) {
      return reject(rejection::missing_update, "a chunk is not updated", verdict::nowhere, c);
    }
    for (std::uint32_t const home : {m.values[c], m.states[c]}) {
      if (home == 0) {
        continue;
      }
      allocation const& a = m.p.allocations[home - 1];
      content const have = m.memory.get({.allocation = {home - 1}, .bytes = a.bytes});
      if (have.count != version || have.of != c ||
          have.what != (home == m.values[c] ? holds::value : holds::state)) {
        return reject(rejection::wrong_version, "a chunk ends as another", a.end, home - 1);
      }
    }
  }
  auto const blocks = static_cast<std::uint32_t>(m.t.blocks.size());
  for (std::uint32_t i = 0; i < m.p.micro_batches; ++i) {
    if (!result_is(m, m.losses[i], {.what = holds::loss, .micro_batch = i, .count = blocks})) {
      return reject(rejection::missing_result, "a loss is not read", verdict::nowhere, i);
    }
  }
  return result_is(m, m.report, {.what = holds::report})
             ? check_shared(m)
             : reject(rejection::missing_result, "the norm is not reported");
}

constexpr verdict check_meaning(program const& p,
                                trace::trace const& t,
                                chunk::layout const& l,
                                update::state_bytes bytes) {
  span_index spans = span_checker(p, t, l).run();
  if (!spans.valid) {
    return spans.valid;
  }
  machine m(p, t, l, bytes, std::move(spans));
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

}  // namespace detail

/// Proves that `p` is one training step of `t` with layout `l`, or says why not. Shares no code
/// with compile. O(n log n) in instructions and operands; constant-evaluable.
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
/// 5. At the end each block ran forward and backward once per micro-batch, each trained chunk's
///    value and state were updated once, from all of its contributions in the required order, and
///    lie where the next step looks for them; frozen chunks are as before; the caller's batches,
///    scalars, losses and report lie where it looks, in memory without another use. By induction
///    over steps (a step ends by waiting for all queues) every step of a run is right.
/// 6. Extents are within the budgets, in bytes, and what isn't carried was given back.
/// What instructions do inside their operands is the device's and the block law's part.
constexpr verdict verify(program const& p,
                         trace::trace const& t,
                         chunk::layout const& l,
                         std::uint64_t device_budget = std::numeric_limits<std::uint64_t>::max(),
                         std::uint64_t host_budget = std::numeric_limits<std::uint64_t>::max()) {
  if (t.job.world != 1 || p.micro_batches == 0 || p.micro_batches != t.job.accumulate ||
      p.fingerprint != trace::fingerprint(t)) {
    return reject(rejection::malformed, "a program of another job");
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
  if (verdict const v = detail::check_memory(p, device_budget, host_budget); !v) {
    return v;
  }
  if (verdict const v = detail::check_instructions(p); !v) {
    return v;
  }
  detail::clocks const order(p);
  if (verdict const v = detail::check_races(p, order); !v) {
    return v;
  }
  return detail::check_meaning(p, t, l, *bytes);
}

}  // namespace protrain::inline v0::schedule
