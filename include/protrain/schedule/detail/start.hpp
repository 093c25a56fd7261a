// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a program says of itself before its first instruction.

#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/spans.hpp"
#include "protrain/trace/trace.hpp"

namespace protrain::inline v0::schedule::detail {

constexpr emitter start(prepared const& known,
                        trace::trace const& t,
                        knobs const& k,
                        segment part) {
  emitter out;
  out.out.fingerprint = known.fingerprint;
  out.out.part = part;
  out.out.micro_batches = part == segment::evaluate ? 1 : 0;
  if (trains(part)) {
    cut const c = cut_step(t.job.accumulate, k.unroll);
    bool const middle = part == segment::middle;
    bool const last = part == segment::last;
    out.out.micro_batches = last ? c.last : c.first;
    out.out.before = middle || last ? c.first * (last ? c.middles + 1 : 1) : 0;
    out.out.times = middle ? c.middles : 1;
  }
  out.out.ranks = t.job.world;
  out.out.spans = known.spans;
  return out;
}

}  // namespace protrain::inline v0::schedule::detail
