// SPDX-License-Identifier: Apache-2.0
#pragma once
// What fixed ways to train would do, beside the plan that the search found.

#include "protrain/core/config.hpp"
#include "protrain/core/result.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/trace.hpp"

#include <string_view>
#include <vector>

namespace protrain::inline v0::plan {

/// A way to train, and its plan or what it lacks.
struct contender {
  std::string_view name{};
  result<plan, infeasible> answer;
};

/// Everything offloaded, everything checkpointed, everything kept; the ProTrain paper's knobs alone
/// (updates on the CPU, within the step); and all that `rules` can do. Each is the fastest plan of its
/// kind, by the same simulation.
template <class Policies = policies<>>
constexpr std::vector<contender> compare(trace::trace const& facts,
                                         hw::machine const& machine,
                                         budget const& memory,
                                         Policies const& rules = {}) {
  struct way {
    std::string_view name;
    std::string_view request;
  };
  std::string_view const paper = model::needs_norm(facts.job) ? "update=cpu,time=after_backward"
                                                              : "update=cpu,time=during_backward";
  std::vector<contender> out{};
  for (way const& each : {way{"all offloaded", "offload_all"},
                          way{"all checkpointed", "checkpoint_all"},
                          way{"all kept", "keep_all"},
                          way{"paper's knobs", paper},
                          way{"ours", "auto"}}) {
    auto const wanted = parse(each.request, facts.job);
    PROTRAIN_EXPECT(wanted.has_value(), "these requests suit every job");
    out.push_back({each.name, make(facts, machine, memory, rules, *wanted)});
  }
  return out;
}

}  // namespace protrain::inline v0::plan
