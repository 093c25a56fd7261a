// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: a program's head, its operands as one rank sees them, and whether two segments of a job
// may follow each other.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace protrain::inline v0::schedule::detail {

/// True where the micro-batches that the program runs are a legal part of the job's step.
constexpr bool right_micro_batches(program const& p, model::job const& j) noexcept {
  std::uint64_t const all = j.accumulate;
  std::uint64_t const own = p.micro_batches;
  std::uint64_t const end = p.before + own * p.times;
  switch (p.part) {
    case segment::step:
    case segment::resume:
      return p.before == 0 && own == all && p.times == 1;
    case segment::first:
    case segment::first_resumed:
      return p.before == 0 && own > 0 && own < all && p.times == 1;
    case segment::middle:
      return p.before > 0 && own > 0 && p.times > 0 && end < all;
    case segment::last:
      return p.before > 0 && own > 0 && end == all && p.times == 1;
    case segment::evaluate:
      return p.before == 0 && own == 1 && p.times == 1;
    case segment::flush:
      return p.before == 0 && own == 0 && p.times == 1;
  }
  return false;
}

constexpr verdict check_head(program const& p,
                             trace::trace const& t,
                             chunk::layout const& l,
                             std::uint64_t rank) {
  if (static_cast<std::size_t>(p.part) >= segment_count || t.job.world == 0 ||
      p.ranks != t.job.world || t.job.accumulate == 0 || !right_micro_batches(p, t.job) ||
      p.fingerprint != trace::fingerprint(t)) {
    return reject(rejection::malformed, "a program of another job");
  }
  if (rank >= p.ranks) {
    return reject(rejection::malformed, "no such rank", verdict::nowhere, rank);
  }
  if (p.deferred.size() != l.chunks.size()) {
    return reject(rejection::malformed, "not one deferral per chunk");
  }
  if (p.part_elements.size() != l.chunks.size()) {
    return reject(rejection::malformed, "not one size of parts per chunk");
  }
  for (std::size_t c = 0; c < p.deferred.size(); ++c) {
    bool const trains = l.chunks[c].trainable && l.chunks[c].elements > 0;
    if (p.deferred[c] != 0 && !trains) {
      return reject(rejection::malformed, "a deferred chunk that doesn't train", 0, c);
    }
    std::uint64_t const part = p.part_elements[c];
    if (part != 0 &&
        (!trains || part % element_granule != 0 || part > l.chunks[c].elements / p.ranks)) {
      return reject(rejection::malformed, "a chunk in parts that it can't have", 0, c);
    }
  }
  return {};
}

/// The same program with the operands where `rank` finds them, the `nth` time that it runs in a
/// step.
constexpr program seen_by(program const& all, std::uint64_t rank, std::uint32_t nth) {
  program out = all;
  out.before += nth * all.micro_batches;
  out.times = 1;
  for (operand& o : out.operands) {
    o.offset = o.offset_on(rank, out.before);
    o.stride = 0;
    o.advance = 0;
  }
  return out;
}

/// How the segments of a step follow each other: whole, or first, middle and last without a gap.
constexpr verdict check_composition(std::span<program const> all, std::uint64_t micro_batches) {
  std::uint64_t begun = 0;  // micro-batches of the programs that begin a step
  std::uint64_t middle = 0;
  std::uint64_t ended = 0;
  std::array<std::uint32_t, segment_count> seen{};
  for (program const& p : all) {
    std::uint64_t const own = std::uint64_t{p.micro_batches} * p.times;
    bool const begins = trains(p.part) && p.before == 0;
    if (seen[static_cast<std::size_t>(p.part)]++ > 0 || (begins && begun > 0 && begun != own)) {
      return reject(rejection::malformed, "segments of different cuts of the step");
    }
    begun = begins ? own : begun;
    middle = p.part == segment::middle ? own : middle;
    ended = p.part == segment::last ? own : ended;
  }
  bool const complete = begun == 0 || begun + middle + ended == micro_batches;
  bool const adjacent = std::ranges::all_of(
      all, [&](program const& p) { return p.part != segment::middle || p.before == begun; });
  return complete && adjacent && (begun > 0 || middle + ended == 0)
             ? verdict{}
             : reject(rejection::malformed, "the segments leave micro-batches of the step out");
}

/// Roles of host memory that the caller shares.
inline constexpr std::array<role, 4> caller_roles{
    role::batch, role::scalars, role::loss, role::report};

/// By such role: 1 + allocation; 0 where none was seen. False once there are two.
constexpr bool find_caller(program const& p, std::array<std::uint32_t, 4>& at) {
  bool one = true;
  for (operand const& o : p.operands) {
    for (std::size_t k = 0; k < caller_roles.size(); ++k) {
      if (o.what == caller_roles[k] && p.allocations[o.allocation.index()].where == space::host) {
        one = one && (at[k] == 0 || at[k] == o.allocation.value + 1);
        at[k] = o.allocation.value + 1;
      }
    }
  }
  return one;
}

/// What the caller shares lies in one place for all segments, and nothing else does. Their carried
/// memory is the same.
constexpr verdict check_caller(std::span<program const> all) {
  std::array<std::uint32_t, 4> at{};
  for (program const& p : all) {
    if (!find_caller(p, at)) {
      return reject(rejection::malformed, "segments that look for the caller elsewhere");
    }
  }
  for (program const& p : all) {
    for (operand const& o : p.operands) {
      for (std::size_t k = 0; k < at.size(); ++k) {
        if (at[k] == o.allocation.value + 1 && o.what != caller_roles[k]) {
          return reject(rejection::malformed, "memory of the caller's has another use");
        }
      }
    }
  }
  return {};
}

/// Carried memory comes first and is the same in both.
constexpr verdict check_same_carried(program const& a, program const& b) {
  if (a.deferred != b.deferred) {
    return reject(rejection::malformed, "segments that defer different chunks");
  }
  if (a.part_elements != b.part_elements) {
    return reject(rejection::malformed, "segments that stream chunks differently");
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
  return {};
}

}  // namespace protrain::inline v0::schedule::detail
