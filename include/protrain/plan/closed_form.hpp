// SPDX-License-Identifier: Apache-2.0
#pragma once
// The paper's own search: the numbers that minimise its closed form. An estimate in well under a
// millisecond, to explain and to start from; `search` compiles, verifies and simulates instead.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/plan/detail/closed_form_search.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::plan {

/// Equation (1): minimises T_iter of (2) subject to M_peak of (11) < `capacity`, over every n_swap
/// that hides behind compute, every n_checkpoint, every n_persist and its range of buffers. Of
/// equal times the least peak wins, then the least persist, buffer, swap, checkpoint in this order.
/// Laws (test/property/plan): the answer is that of the equations, evaluated one by one; equal
/// inputs give equal answers. Failure is `no_device_memory` with the bytes that are short.
/// O(swaps x checkpoints x (blocks + chunks)).
constexpr result<closed_form> search_closed_form(cost::paper_job const& j, bytes capacity) {
  return detail::closed_form_searcher(j, capacity).run();
}

}  // namespace protrain::inline v0::plan
