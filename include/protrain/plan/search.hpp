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

namespace detail {

/// One search, with the usual slots for parts where `wanted` names none.
template <class Policies>
constexpr result<plan, infeasible> search_once(trace::trace const& t,
                                               hw::machine const& m,
                                               budget const& b,
                                               Policies const& rules,
                                               request const& wanted,
                                               limits const& most) {
  space_of<Policies> all(t, m, rules);
  if (error const wrong = all.open(wanted); wrong.code != errc::none) {
    return infeasible{.code = wrong.code, .reason = wrong.what, .number = wrong.number};
  }
  return searcher<Policies>(all, m, b, most).run();
}

/// Gives back the slots for parts that take memory and save no time.
template <class Policies>
constexpr void give_back_slots(
    plan& p, hw::machine const& m, budget const& b, Policies const& rules, limits const& most) {
  auto fewer = parse(p.string().view(), p.trace.job);
  PROTRAIN_EXPECT(fewer.has_value(), "a plan's string is a request");
  fewer->streaming_slots = 1;
  auto const other = search_once(p.trace, m, b, rules, *fewer, most);
  if (other && other->predicted.iteration == p.predicted.iteration &&
      other->predicted.device.peak < p.predicted.device.peak) {
    p.knobs = other->knobs;
    p.at = other->at;
    p.predicted = other->predicted;
  }
}

}  // namespace detail

/// The plan that `wanted` asks for; what it leaves open is chosen so that the predicted time is
/// least, then the device memory, then the numbers in their order; streaming slots aren't
/// searched, only given back where that costs no time. Laws (test/property/plan):
/// the program is verified and within the budget; no fixed policy of the bundle that agrees with
/// `wanted` and fits is predicted faster; where the search is proven, no plan of the space is, and
/// more memory never makes the predicted time longer; equal inputs give equal answers.
template <class Policies = policies<>>
constexpr result<plan, infeasible> make(trace::trace const& t,
                                        hw::machine const& m,
                                        budget const& b,
                                        Policies const& rules,
                                        request const& wanted,
                                        limits const& most = {}) {
  static_assert(require_bundle<Policies>());
  auto found = detail::search_once(t, m, b, rules, wanted, most);
  if (found && found->at.streaming_slots > 1 && !wanted.streaming_slots) {
    detail::give_back_slots(*found, m, b, rules, most);
  }
  return found;
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
