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

template <class Policies>
constexpr void give_back(plan& p,
                         hw::machine const& m,
                         budget const& b,
                         Policies const& rules,
                         request const& wanted,
                         limits const& most);

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
  space_of<Policies> all(t, m, rules);
  if (error const wrong = all.open(wanted); wrong.code != errc::none) {
    return infeasible{.code = wrong.code, .reason = wrong.what, .number = wrong.number};
  }
  auto found = detail::searcher<Policies>(all, m, b, most).run();
  if (found) {
    detail::give_back(*found, m, b, rules, wanted, most);
  }
  return found;
}

namespace detail {

/// Replaces `p` by what `r` asks for if that takes as long and less device memory.
template <class Policies>
constexpr void take_if_smaller(plan& p,
                               hw::machine const& m,
                               budget const& b,
                               Policies const& rules,
                               request const& r,
                               limits const& most) {
  auto const other = make(p.trace, m, b, rules, r, most);
  if (other && other->predicted.iteration == p.predicted.iteration &&
      other->predicted.device.peak < p.predicted.device.peak) {
    p.knobs = other->knobs;
    p.at = other->at;
    p.predicted = other->predicted;
  }
}

/// The search gives every plan the usual slots for parts; those that only cost memory are given
/// back.
template <class Policies>
constexpr void give_back(plan& p,
                         hw::machine const& m,
                         budget const& b,
                         Policies const& rules,
                         request const& wanted,
                         limits const& most) {
  if (p.at.streaming_slots <= 1 || wanted.streaming_slots) {
    return;
  }
  auto fixed = parse(p.string().view(), p.trace.job);
  PROTRAIN_EXPECT(fixed.has_value(), "a plan's string is a request");
  fixed->streaming_slots = 1;
  take_if_smaller(p, m, b, rules, *fixed, most);
}

}  // namespace detail

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
