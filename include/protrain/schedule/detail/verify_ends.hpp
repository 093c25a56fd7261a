// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: what is there before a segment, and what must be there after it.

#include "protrain/schedule/detail/verify_machine.hpp"
#include "protrain/schedule/detail/verify_passes.hpp"
#include "protrain/schedule/detail/verify_states.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"

#include <array>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// The store of a chunk with its first `contributions`.
constexpr content store_of(chunk_id c, std::uint64_t contributions) {
  return {.what = holds::store, .of = c.value, .count = static_cast<std::uint32_t>(contributions)};
}
/// With all of the step before, which left its update over.
constexpr content left_store(machine const& m, chunk_id c) {
  content out = store_of(c, m.contributions(c));
  out.micro_batch = 1;
  return out;
}

/// Bytes of a carried allocation of a chunk: values are replicated on devices and sharded on hosts.
constexpr std::uint64_t home_bytes(machine const& m, allocation const& home) {
  chunk_id const c = home.chunk;
  switch (home.what) {
    case category::parameters:
      return home.where == space::device ? m.value_bytes(c) : m.value_shard(c);
    case category::optimizer:
      return m.state_shard(c);
    default:
      return m.store_shard(c);
  }
}

/// One chunk's home: what it holds before the segment, and that there is one only.
constexpr verdict place_home(machine& m, std::uint32_t a) {
  allocation const& home = m.p.allocations[a];
  chunk_id const c = home.chunk;
  bool const known = c.index() < m.l.chunks.size() && m.l[c].elements > 0;
  if (!known || home.bytes != home_bytes(m, home) ||
      (home.what != category::parameters && !m.l[c].trainable)) {
    return reject(rejection::malformed, "a wrong home of a chunk", home.begin, a);
  }
  content now{.what = holds::value, .of = c.value, .count = m.first_version(c)};
  std::uint32_t* list = &m.values[c.index()];
  if (home.what == category::optimizer) {
    now.what = holds::state;
    list = &m.states[c.index()];
  } else if (home.what == category::gradients) {
    now = m.summed_before(c) > 0 ? store_of(c, m.summed_before(c)) : content{};
    now = m.deferred(c) && resumes(m.p.part) ? left_store(m, c) : now;
    list = &m.stores[c.index()];
  }
  if (*list != 0) {
    return reject(rejection::malformed, "a chunk with two homes", home.begin, a);
  }
  *list = a + 1;
  m.memory.set({.allocation = {a}, .bytes = home.bytes}, now);
  return {};
}

/// What is there before a segment: carried values and states, each chunk's once, together; and
/// the gradients of updates that were left over.
constexpr verdict place_homes(machine& m) {
  for (std::uint32_t a = 0; a < m.p.allocations.size(); ++a) {
    category const what = m.p.allocations[a].what;
    bool const home =
        what == category::parameters || what == category::gradients || what == category::optimizer;
    if (m.p.allocations[a].carried && home) {
      if (verdict const v = place_home(m, a); !v) {
        return v;
      }
    }
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

/// What the caller reads after the segment.
constexpr verdict check_results(machine const& m) {
  bool const final = closes(m.p.part) || m.p.part == segment::evaluate;
  for (std::uint32_t i = 0; i < m.p.micro_batches && !(m.several() && final); ++i) {
    content want = all_losses(m);
    want.micro_batch = i;
    if (!result_is(m, m.losses[i], want)) {
      return reject(rejection::missing_result, "a loss is not read", verdict::nowhere, i);
    }
  }
  bool const exchanges = m.several() && (closes(m.p.part) || m.p.part == segment::evaluate);
  if (exchanges && !result_is(m, m.exchanged, all_losses(m))) {
    return reject(rejection::missing_result, "the losses are not exchanged");
  }
  if (!closes(m.p.part)) {
    return m.finishes == 0 ? check_shared(m)
                           : reject(rejection::norm, "the norm of no gradient is finished");
  }
  std::uint32_t const scalars = m.shared[static_cast<std::size_t>(shared_place::scalars)];
  if (needs_norm(m.t.job) && scalars != 0 &&
      m.memory.get({.allocation = {scalars - 1}, .bytes = scalars_bytes}) != scalars_of(m)) {
    return reject(rejection::missing_result, "the scalars end as another step's");
  }
  return result_is(m, m.report, {.what = holds::report})
             ? check_shared(m)
             : reject(rejection::missing_result, "the norm is not reported");
}

/// One chunk after the last instruction: where it was, at the version that the next segment
/// expects; an update that is left over finds its gradient.
constexpr verdict check_chunk_end(machine const& m, chunk_id id) {
  std::size_t const c = id.index();
  std::uint32_t const version = m.last_version(id);
  if (m.updates[c] != version - m.first_version(id)) {
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
  bool const left = m.deferred(id) && closes(m.p.part);
  bool const goes_on = m.trained(id) && trains(m.p.part) && !closes(m.p.part);
  if (left || goes_on) {
    content const have =
        m.stores[c] == 0
            ? content{}
            : m.memory.get({.allocation = {m.stores[c] - 1}, .bytes = m.store_shard(id)});
    if (have != store_of(id, m.summed_after(id)) || (m.counted[c] != 0) != left) {
      return reject(
          rejection::missing_accumulate, "no gradient for the next segment", verdict::nowhere, c);
    }
  }
  return {};
}

/// After the last instruction: everything ran, chunks are as the next segment expects them, and
/// the caller finds losses and report.
constexpr verdict check_end(machine const& m) {
  std::uint32_t const backwards = trains(m.p.part) ? m.p.micro_batches : 0;
  for (std::size_t b = 0; b < m.t.blocks.size(); ++b) {
    if (m.forwards[b] != m.p.micro_batches || m.backwards[b] != backwards) {
      return reject(rejection::missing_pass, "a block misses a pass", verdict::nowhere, b);
    }
  }
  for (std::size_t c = 0; c < m.l.chunks.size(); ++c) {
    if (m.l.chunks[c].elements > 0) {
      if (verdict const v = check_chunk_end(m, make_id<chunk_id>(c)); !v) {
        return v;
      }
    }
  }
  return check_results(m);
}

}  // namespace protrain::inline v0::schedule::detail
