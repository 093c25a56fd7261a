// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each chunk's persistence brings and takes: what a placement policy may weigh.

#include "protrain/chunk/placement.hpp"
#include "protrain/cost/step.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::cost {

/// One entry per chunk. Saved are two uploads for each micro-batch (forward and backward, as if no
/// buffer held the chunk in between), the way of its gradients to the host and the host's work.
/// O(chunks + spans).
constexpr std::vector<chunk::benefit> benefits_of(step const& s) {
  std::vector<chunk::benefit> out{};
  for (chunk_cost const& c : s.chunks) {
    picoseconds const host = c.updated ? c.norm_host + c.update_host : picoseconds{};
    out.push_back(
        {.bytes = checked_add(c.value, c.states), .saved = c.upload * 2 * s.micro_batches + host});
  }
  for (span_cost const& g : s.spans) {
    out[g.chunk.index()].saved += (g.offload + g.accumulate_host) * s.micro_batches;
  }
  return out;
}

}  // namespace protrain::inline v0::cost
