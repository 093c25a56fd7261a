// SPDX-License-Identifier: Apache-2.0
#pragma once
// Who would hold the memory that isn't there: the peak of the plan that lacks least.

#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/report/memory_dump.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace protrain::inline v0::report {

/// Why there is no plan: who holds the memory that the nearest plan lacks. Empty where memory isn't
/// what is short. Plans and compiles once more.
template <class Policies = plan::policies<>>
std::string shortage_dump(trace::trace const& facts,
                          hw::machine const& machine,
                          plan::infeasible const& why,
                          Policies const& rules = {},
                          std::size_t most = 20) {
  if (!why.lacks_memory()) {
    return {};
  }
  constexpr bytes plenty{std::uint64_t{1} << 60U};
  auto const wanted = plan::parse(plan::print(why.nearest).view());
  if (!wanted) {
    return {};
  }
  auto const nearest =
      plan::make(facts, machine, plan::budget{.gpu = plenty, .host = plenty}, rules, *wanted);
  auto const programs =
      nearest ? nearest->segments(rules.eviction) : result<std::vector<schedule::program>>(error{});
  return programs ? memory_dump(*programs, facts, why.where(), most) : std::string{};
}

}  // namespace protrain::inline v0::report
