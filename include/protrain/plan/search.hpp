// SPDX-License-Identifier: Apache-2.0
#pragma once
// Finds the fastest plan that fits: best first by a bound, each survivor compiled and simulated.

#include "protrain/core/config.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/searcher.hpp"  // IWYU pragma: export
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/space.hpp"
#include "protrain/trace/trace.hpp"

#include <utility>
#include <vector>

namespace protrain::inline v0::plan {

/// The plan that `wanted` asks for; what it leaves open is chosen so that the predicted time is
/// least, then the device memory, then the numbers in their order. Where the space is large, slots
/// aren't searched, only given back where that costs no time. Laws (test/property/plan): the program
/// is verified and within the budget; no fixed policy of the bundle that agrees with `wanted` and
/// fits is predicted faster; where the search is proven, no plan of the space is, and more memory
/// never makes the predicted time longer; equal inputs give equal answers.
template <class Policies = policies<>>
constexpr result<plan, infeasible> make(trace::trace const& t,
                                        hw::machine const& m,
                                        budget const& b,
                                        Policies const& rules,
                                        request const& wanted,
                                        limits const& most = {}) {
  static_assert(require_bundle<Policies>());
  space_of<Policies> all(t, m, rules);
  if (error const wrong = all.open(wanted); wrong.code != errc::none) {
    return infeasible{.code = wrong.code, .reason = wrong.what, .number = wrong.number};
  }
  return detail::searcher<Policies>(all, m, b, most).run();
}

/// The fastest plan that fits.
template <class Policies = policies<>>
constexpr result<plan, infeasible> search(trace::trace const& t,
                                          hw::machine const& m,
                                          budget const& b,
                                          Policies const& rules = {},
                                          limits const& most = {}) {
  return make(t, m, b, rules, request{}, most);
}

}  // namespace protrain::inline v0::plan
