// SPDX-License-Identifier: Apache-2.0
// The search under either bundle of policies, compiled once.

#include "examples/paper/ways.hpp"

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/analytic.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/timing.hpp"

namespace paper {
namespace {

namespace plan = protrain::plan;

constexpr auto paper_policies = plan::policies<>{}
                                    .with(protrain::chunk::persist_first{})
                                    .with(protrain::chunk::uniform_grid{})
                                    .with(protrain::chunk::execution_order{})
                                    .with(protrain::activation::interleaved{})
                                    .with(protrain::link::derated{})
                                    .with(protrain::update::gpu_if_persistent{})
                                    .with(protrain::update::during_backward{});

/// What `make` answers under the bundle of `w`.
template <class Make>
auto under(way const& w, Make const& make) {
  return w.rules == bundle::theirs ? make(paper_policies) : make(plan::policies<>{});
}

}  // namespace

protrain::hw::machine machine_named(std::string_view name) {
  return protrain::hw::preset(name).value();
}

protrain::trace::trace make_facts(way const& w,
                                  protrain::model::decoder_config const& shape,
                                  protrain::hw::machine const& m,
                                  std::uint64_t micro_batch) {
  protrain::model::job const job{.micro_batch = micro_batch,
                                 .sequence = sequence,
                                 .world = protrain::hw::all_ranks(m),
                                 .type = protrain::dtype::bf16,
                                 .state = protrain::model::state_format::split_master};
  return protrain::trace::analytic(shape, job, m, {.attention = w.attention});
}

protrain::result<plan::plan, plan::infeasible> make_plan(way const& w,
                                                         protrain::trace::trace const& facts,
                                                         protrain::hw::machine const& m,
                                                         plan::request const& wanted,
                                                         options const& o) {
  return under(w, [&](auto const& rules) {
    return plan::make(facts, m, plan::budget_of(m), rules, wanted, o.limits);
  });
}

plan::micro_batch_answer best_micro_batch(way const& w,
                                          protrain::model::decoder_config const& shape,
                                          protrain::hw::machine const& m,
                                          options const& o) {
  auto const facts = [&](std::uint64_t n) { return make_facts(w, shape, m, n); };
  return under(w, [&](auto const& rules) {
    return plan::search_micro_batch(facts, m, plan::budget_of(m), rules, plan::request{}, o.limits);
  });
}

double tokens_per_second(plan::plan const& p) {
  return static_cast<double>(protrain::model::tokens_per_step(p.trace.job)) /
         p.predicted.iteration.seconds();
}

}  // namespace paper
