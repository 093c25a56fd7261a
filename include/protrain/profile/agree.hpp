// SPDX-License-Identifier: Apache-2.0
#pragma once
// What ranks measure differs a little; plans are made by every rank for itself and must be equal.
// Everything here is collective, and called on the thread that issues.

#include "protrain/comm/communicator.hpp"
#include "protrain/core/units.hpp"
#include "protrain/profile/error.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>

namespace protrain::inline v0::profile {

namespace detail {

/// Rank 0's number.
template <comm::communicator Comm>
std::uint64_t of_first(Comm& comm, std::uint64_t n) {
  return comm.sum(comm.rank() == 0 ? n : 0);
}

/// The largest number of all ranks, bit by bit: 64 sums.
template <comm::communicator Comm>
std::uint64_t largest(Comm& comm, std::uint64_t n) {
  if (comm.size() == 1) {
    return n;
  }
  std::uint64_t found = 0;
  bool candidate = true;
  for (std::uint64_t bit = std::uint64_t{1} << 63U; bit != 0; bit >>= 1U) {
    bool const has = candidate && (n & bit) != 0;
    if (comm.sum(has ? 1 : 0) > 0) {
      found |= bit;
      candidate = has;
    }
  }
  return found;
}

template <comm::communicator Comm>
picoseconds mean(Comm& comm, picoseconds t) {
  return {comm.sum(t.value) / comm.size()};
}

}  // namespace detail

/// One trace for all ranks: times are the mean of theirs, memory outside the library the largest.
/// Throws profile_error on every rank if they have not profiled the same job.
template <comm::communicator Comm>
trace::trace agree(Comm& comm, trace::trace facts) {
  std::uint64_t const own = trace::fingerprint(facts);
  bool const differs = own != detail::of_first(comm, own);
  if (comm.sum(differs ? 1 : 0) > 0) {
    throw profile_error("the ranks have profiled different jobs: their traces' bytes differ");
  }
  facts.outside = {detail::largest(comm, facts.outside.value)};
  for (trace::block_shape& s : facts.shapes) {
    s.forward = detail::mean(comm, s.forward);
    s.backward = detail::mean(comm, s.backward);
    for (trace::save_level& l : s.levels) {
      l.rebuild = detail::mean(comm, l.rebuild);
    }
    for (trace::operator_facts& o : s.operators) {
      o.forward = detail::mean(comm, o.forward);
      o.backward = detail::mean(comm, o.backward);
    }
  }
  return facts;
}

}  // namespace protrain::inline v0::profile
