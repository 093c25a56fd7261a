// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: a program's head, its operands as one rank sees them, and whether two segments of a job
// may follow each other.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::schedule::detail {

/// Micro-batches that a segment of the job runs.
constexpr std::uint64_t micro_batches_of(segment part, model::job const& j) noexcept {
  if (trains(part)) {
    return j.accumulate;
  }
  return part == segment::evaluate ? 1 : 0;
}

constexpr verdict check_head(program const& p,
                             trace::trace const& t,
                             chunk::layout const& l,
                             std::uint64_t rank) {
  if (p.part > segment::evaluate || t.job.world == 0 || p.ranks != t.job.world ||
      t.job.accumulate == 0 || p.micro_batches != micro_batches_of(p.part, t.job) ||
      p.fingerprint != trace::fingerprint(t)) {
    return reject(rejection::malformed, "a program of another job");
  }
  if (rank >= p.ranks) {
    return reject(rejection::malformed, "no such rank", verdict::nowhere, rank);
  }
  if (p.deferred.size() != l.chunks.size()) {
    return reject(rejection::malformed, "not one deferral per chunk");
  }
  for (std::size_t c = 0; c < p.deferred.size(); ++c) {
    if (p.deferred[c] != 0 && (!l.chunks[c].trainable || l.chunks[c].elements == 0)) {
      return reject(rejection::malformed, "a deferred chunk that doesn't train", 0, c);
    }
  }
  return {};
}

/// The same program with the operands where `rank` finds them.
constexpr program seen_by(program const& all, std::uint64_t rank) {
  program out = all;
  for (operand& o : out.operands) {
    o.offset = o.offset_on(rank);
    o.stride = 0;
  }
  return out;
}

/// By role that the caller shares: 1 + its allocation on the host, 0 if the program has none.
constexpr std::array<std::uint32_t, 4> shared_allocations(program const& p) {
  constexpr std::array<role, 4> roles{role::batch, role::scalars, role::loss, role::report};
  std::array<std::uint32_t, 4> out{};
  for (operand const& o : p.operands) {
    for (std::size_t k = 0; k < roles.size(); ++k) {
      bool const host = p.allocations[o.allocation.index()].where == space::host;
      out[k] = o.what == roles[k] && host ? o.allocation.value + 1 : out[k];
    }
  }
  return out;
}

/// Carried memory comes first and is the same in both; what the caller shares lies there alike.
constexpr verdict check_same_carried(program const& a, program const& b) {
  if (a.deferred != b.deferred) {
    return reject(rejection::malformed, "segments that defer different chunks");
  }
  std::size_t const n =
      a.allocations.size() > b.allocations.size() ? a.allocations.size() : b.allocations.size();
  for (std::size_t i = 0; i < n; ++i) {
    bool const in_a = i < a.allocations.size() && a.allocations[i].carried;
    bool const in_b = i < b.allocations.size() && b.allocations[i].carried;
    if (!in_a && !in_b) {
      continue;
    }
    bool same = in_a && in_b;
    if (same) {
      allocation other = b.allocations[i];
      other.end = a.allocations[i].end;
      same = other == a.allocations[i];
    }
    if (!same) {
      return reject(rejection::malformed, "segments that carry other memory", 0, i);
    }
  }
  auto const x = shared_allocations(a);
  auto const y = shared_allocations(b);
  for (std::size_t k = 0; k < x.size(); ++k) {
    if (x[k] != 0 && y[k] != 0 && x[k] != y[k]) {
      return reject(rejection::malformed, "segments that look for the caller elsewhere");
    }
  }
  return {};
}

}  // namespace protrain::inline v0::schedule::detail
