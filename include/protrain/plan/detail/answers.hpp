// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a search says at its end: the plan and what came next, or what is short.

#include "protrain/activation/assignment.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/text.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/changes.hpp"
#include "protrain/plan/detail/decisions.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Which of two candidates is the better answer.
template <class Policies>
struct ranking {
  space_of<Policies> const& space;
  allowance allowed;

  constexpr bool fits(scored const& s) const {
    return s.device <= allowed.device && s.host <= allowed.host;
  }

  /// The order of answers: time, device memory, then the numbers.
  constexpr bool before(scored const& a, scored const& b) const {
    if (a.time != b.time) {
      return a.time < b.time;
    }
    if (a.device != b.device) {
      return a.device < b.device;
    }
    return key(a.what) < key(b.what);
  }
  constexpr auto key(candidate const& c) const {
    activation::counts const& n = space.counts[c.assignment];
    placement_numbers const& p = space.placed_as[c.placement];
    return std::tuple(p.persist,
                      c.buffers,
                      n.swap,
                      n.checkpoint,
                      n.levels,
                      p.streamed,
                      p.defer,
                      space.gradient_slots[c.assignment],
                      c.slots);
  }
};

struct named_result {
  std::string_view name;
  std::size_t at = 0;
};

/// Everything that an answer is made from.
template <class Policies>
class answers {
 public:
  constexpr answers(space_of<Policies> const& space,
                    hw::machine const& machine,
                    budget const& b,
                    ranking<Policies> const& order,
                    evaluator<Policies> const& programs,
                    std::vector<named_result> const& fixed)
      : space_(space),
        machine_(machine),
        budget_(b),
        order_(order),
        programs_(programs),
        fixed_(fixed) {}

  /// Of the candidate that lacks least.
  constexpr infeasible shortage(scored const& s) const {
    std::uint64_t const local = std::max<std::uint64_t>(
        1, std::min<std::uint64_t>(space_.facts.job.world, machine_.devices));
    infeasible out{.needs_device = s.device + budget_.reserve.value + space_.facts.outside.value,
                   .needs_host = s.host * local};
    out.short_device =
        out.needs_device > budget_.gpu.value ? out.needs_device - budget_.gpu.value : 0;
    out.short_host = out.needs_host > budget_.host.value ? out.needs_host - budget_.host.value : 0;
    out.code = out.short_device > 0 ? errc::no_device_memory : errc::no_host_memory;
    out.reason =
        out.short_device > 0 ? "no plan fits the GPU budget" : "no plan fits the host budget";
    out.number = out.short_device > 0 ? out.short_device : out.short_host;
    out.nearest = numbers_of(space_, s.what);
    return out;
  }

  /// The result at `best`.
  constexpr result<plan, infeasible> answer(std::size_t best, search_facts const& how) const {
    scored const& s = programs_.results()[best];
    auto predicted = programs_.predict(s.what, order_.allowed);
    if (!predicted) {
      error const& wrong = predicted.failure();
      return infeasible{.code = wrong.code, .reason = wrong.what, .number = wrong.number};
    }
    plan out{.trace = space_.facts,
             .layout = space_.layout,
             .knobs = knobs_of(space_, s.what),
             .at = numbers_of(space_, s.what),
             .sizing = space_.wanted.chunk ? "given" : "policy",
             .predicted = *std::move(predicted),
             .runner_up = runner_ups(best),
             .search = how};
    out.changed = changes(space_.wanted, out.at);
    return out;
  }

 private:
  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  constexpr alternative alternative_of(std::string_view name, scored const& s) const {
    return {.name = text(name),
            .at = numbers_of(space_, s.what),
            .iteration = s.time,
            .device_peak = s.device,
            .host_peak = s.host};
  }

  /// Fixed policies that fit, then the three best others.
  constexpr std::vector<alternative> runner_ups(std::size_t best) const {
    std::vector<alternative> out{};
    std::vector<std::size_t> listed{best};
    for (auto const& [name, at] : fixed_) {
      bool const seen = std::ranges::find(listed, at) != listed.end();
      if (!seen && order_.fits(programs_.results()[at])) {
        out.push_back(alternative_of(name, programs_.results()[at]));
        listed.push_back(at);
      }
    }
    for (int n = 0; n < 3; ++n) {
      std::size_t next = none;
      for (std::size_t i = 0; i < programs_.results().size(); ++i) {
        scored const& s = programs_.results()[i];
        bool const seen = std::ranges::find(listed, i) != listed.end();
        if (!seen && order_.fits(s) &&
            (next == none || order_.before(s, programs_.results()[next]))) {
          next = i;
        }
      }
      if (next != none) {
        out.push_back(alternative_of("", programs_.results()[next]));
        listed.push_back(next);
      }
    }
    return out;
  }

  space_of<Policies> const& space_;
  hw::machine const& machine_;
  budget const& budget_;
  ranking<Policies> const& order_;
  evaluator<Policies> const& programs_;
  std::vector<named_result> const& fixed_;
};

}  // namespace protrain::inline v0::plan::detail
