// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small random jobs whose programs are there to be damaged: all segments, the data of a short
// training, and what the plain loop makes of them.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "test/support/differential.hpp"
#include "test/support/plain_ranks.hpp"
#include "test/support/random_jobs.hpp"
#include "test/support/ranks.hpp"
#include "test/support/synthetic.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace protrain::test {

struct mutant_job {
  std::uint64_t seed = 0;
  subject model{};
  chunk::layout layout{};
  schedule::knobs knobs{};
  std::vector<schedule::program> segments{};
  std::array<std::uint64_t, space_count> budget{};  ///< by space: the segments' largest end
  std::vector<global_data> steps{};                 ///< by step; an evaluation's come last
  outcome good{};

  std::uint64_t ranks() const { return model.job().world; }
};

inline constexpr std::uint64_t mutant_steps = 3;

/// Trains `mutant_steps` steps with an evaluation before the last one, then reads everything; so
/// every segment of a job runs, also those that come back to what a step left over. `Trainer` is an
/// engine or the plain loop, `part(data)` what it gets of the data. Stops once `goes_on(out)` is
/// false.
template <class Trainer, class Part, class GoesOn>
void follow(
    mutant_job const& j, Trainer& trainer, outcome& out, Part const& part, GoesOn const& goes_on) {
  trainer.initialise(j.model.load);
  for (std::uint64_t step = 0; step < mutant_steps; ++step) {
    if (step + 1 == mutant_steps) {
      float const loss = trainer.evaluate(part(j.steps.back()));
      out.losses.push_back(std::bit_cast<std::uint32_t>(loss));
      out.norms.push_back(0);
      out.clipped.push_back(0);
    }
    double const rate = 1e-2 / static_cast<double>(1 + step);
    runtime::step_result const r = trainer.step(part(j.steps[step]), {.learning_rate = rate});
    out.losses.push_back(std::bit_cast<std::uint32_t>(r.loss));
    out.norms.push_back(std::bit_cast<std::uint32_t>(r.grad_norm));
    out.clipped.push_back(std::bit_cast<std::uint32_t>(r.grad_norm_clipped));
    if (!goes_on(out)) {
      return;
    }
  }
  add_parameters(out, trainer, j.model);
}

namespace detail {

inline std::uint64_t end_in(schedule::program const& p, space where) {
  std::uint64_t end = 0;
  for (schedule::allocation const& a : p.allocations) {
    end = std::max(end, a.where == where ? a.offset + granules(a.bytes) : 0);
  }
  return end;
}

inline schedule::knobs mutant_knobs(random_source& r,
                                    trace::trace const& t,
                                    chunk::layout const& l) {
  schedule::knobs k = random_knobs(r, t, l);
  k.unroll = r.between32(1, 2);
  if (r.chance(60)) {  // more rebuilds than random knobs have
    k.levels.assign(t.blocks.size(), 0);
    for (std::size_t b = 0; b < t.blocks.size(); ++b) {
      trace::block_shape const& s = t.shape(make_id<block_id>(b));
      if (s.pinned == trace::pin::free && !s.levels.empty()) {
        k.strategies[b] = activation::strategy::keep;
        k.levels[b] = static_cast<std::uint8_t>(r.between(1, s.levels.size()));
      }
    }
  }
  if (r.chance(50)) {
    k.time = update::timing::before_next_use;
    k.defer = r.chance(50) ? 99 : r.between32(1, 3);
  }
  return k;
}

/// Empty where the seed's job is too large or has nothing to train.
inline std::vector<schedule::program> draw_job(mutant_job& j, std::uint64_t world) {
  random_source r(j.seed);
  trace::trace facts = smaller(random_trace(r));
  bool const fits = facts.blocks.size() > 1 && facts.blocks.size() < 5 && facts.batch.value > 0;
  if (!fits) {
    return {};
  }
  facts.job.world = world;
  facts.job.accumulate = r.chance(50) ? r.between(3, 5) : r.between(1, 2);
  j.layout = chunk::make_layout(facts, r.between(100, 600));
  j.knobs = mutant_knobs(r, facts, j.layout);
  auto all = schedule::compile_segments(facts, j.layout, j.knobs);
  std::size_t instructions = 0;
  for (schedule::program const& p : *all) {
    instructions += p.instructions.size();
  }
  if (instructions > 400 || all->front().spans.empty()) {
    return {};
  }
  j.model = make_subject(synthetic_model(facts), facts.job, uniform_values(0.5F));
  return *std::move(all);
}

}  // namespace detail

/// The first fitting job from `seed` on.
inline mutant_job make_mutant_job(std::uint64_t seed, std::uint64_t world) {
  mutant_job j{.seed = seed};
  while (j.segments.empty()) {
    j.segments = detail::draw_job(j, world);
    j.seed += j.segments.empty() ? 1U : 0U;
  }
  for (schedule::program const& p : j.segments) {
    for (space const where : {space::device, space::host}) {
      std::uint64_t& most = j.budget[static_cast<std::size_t>(where)];
      most = std::max(most, detail::end_in(p, where));
    }
  }
  for (std::uint64_t step = 0; step < mutant_steps; ++step) {
    j.steps.emplace_back(j.model, step);
  }
  j.steps.emplace_back(j.model, 1000, 1);
  plain_ranks trainer(j.model.table, j.model.job());
  follow(
      j,
      trainer,
      j.good,
      [](global_data const& d) -> auto const& { return d.all(); },
      [](outcome const&) { return true; });
  return j;
}

/// Jobs that are made once and damaged often: `alone` of one rank, then `together` of three.
class mutant_pool {
 public:
  mutant_pool(std::uint64_t first_seed, std::size_t alone, std::size_t together)
      : first_seed_(first_seed), alone_(alone), jobs_(alone + together) {}

  /// Of several ranks, or mostly of one.
  mutant_job const& draw(random_source& dice, bool several_ranks) {
    bool const several = several_ranks || dice.chance(12);
    return at(several ? dice.between(alone_, jobs_.size() - 1) : dice.between(0, alone_ - 1));
  }

  std::size_t size() const { return jobs_.size(); }
  mutant_job const& at(std::size_t i) {
    if (jobs_[i] == nullptr) {
      jobs_[i] = std::make_unique<mutant_job const>(
          make_mutant_job(first_seed_ + 1000 * i, i < alone_ ? 1 : 3));
    }
    return *jobs_[i];
  }

 private:
  std::uint64_t first_seed_;
  std::size_t alone_;
  std::vector<std::unique_ptr<mutant_job const>> jobs_;
};

}  // namespace protrain::test
