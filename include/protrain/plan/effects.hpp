// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each knob of a plan does: the same plan with that knob turned back.

#include "protrain/core/config.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

namespace protrain::inline v0::plan {

/// A plan with one knob turned back as far as it goes, all others as they were.
struct knob_effect {
  std::string_view knob{};  ///< its key in the plan string
  numbers at{};             ///< the plan without it
  picoseconds iteration{};  ///< predicted
  bytes device_peak{};      ///< predicted, whatever the budget
  bytes host_peak{};        ///< predicted, whatever the budget
  bool operator==(knob_effect const&) const = default;
};

namespace detail {

/// The request for a plan as it is, with the knob `key` turned back.
constexpr request turned_back(request r, std::string_view key) {
  if (key == "persist") {
    r.persist = 0;
    r.persist_set.clear();
    r.listed = false;
  } else if (key == "buffer") {
    r.buffer = 0;
  } else if (key == "swap") {
    r.swap = 0;
  } else if (key == "checkpoint") {
    r.checkpoint = 0;
  } else if (key == "update") {
    r.streamed = 0;
    r.streaming_slots.reset();
  } else if (key == "defer") {
    r.defer = 0;
  } else if (key == "levels") {
    r.levels = level_counts{};
  } else if (key == "slots") {
    r.gradient_slots = 1;
    if (r.streaming_slots.value_or(0) > 1) {
      r.streaming_slots = 1;
    }
  } else if (key == "unroll") {
    r.unroll = 1;
  }
  return r;
}

}  // namespace detail

/// One entry for each knob that `p`, which `rules` made for `m`, has turned: what the step would
/// take without it, in time and in memory. Knobs that are at rest, or that the others need, have
/// none. Compiles and simulates a program for each, so O(knobs) plans.
template <class Policies = policies<>>
constexpr std::vector<knob_effect> effects(plan const& p,
                                           hw::machine const& m,
                                           Policies const& rules = {},
                                           limits const& most = {}) {
  constexpr std::array<std::string_view, 9> keys{
      "persist", "buffer", "swap", "checkpoint", "update", "defer", "levels", "slots", "unroll"};
  constexpr bytes plenty{std::numeric_limits<std::uint64_t>::max() / 4};
  std::vector<knob_effect> out;
  auto const as_it_is = parse(p.string().view(), p.trace.job);
  PROTRAIN_EXPECT(as_it_is.has_value(), "a plan's string is a request");
  for (std::string_view const key : keys) {
    auto const other = make(p.trace,
                            m,
                            {.gpu = plenty, .host = plenty, .reserve = {}},
                            rules,
                            detail::turned_back(*as_it_is, key),
                            most);
    if (other && other->at != p.at) {
      out.push_back({.knob = key,
                     .at = other->at,
                     .iteration = other->predicted.iteration,
                     .device_peak = {other->predicted.device.peak},
                     .host_peak = {other->predicted.host.peak}});
    }
  }
  return out;
}

}  // namespace protrain::inline v0::plan
