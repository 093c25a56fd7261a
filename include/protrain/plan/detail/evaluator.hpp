// SPDX-License-Identifier: Apache-2.0
#pragma once
// Compiles and simulates candidates, each at most once, and remembers what their memory says about
// others.

#include "protrain/core/math.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/decisions.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/space.hpp"
#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/spans.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/sim/durations.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/simulate.hpp"
#include "protrain/sim/whole_step.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// A compiled candidate.
struct scored {
  candidate what{};
  picoseconds time{};
  std::uint64_t device = 0;  ///< extents
  std::uint64_t host = 0;
  std::uint64_t instructions = 0;
};

/// Largest end of an allocation in `where`.
constexpr std::uint64_t extent_of(schedule::program const& p, space where) {
  std::uint64_t most = 0;
  for (schedule::allocation const& a : p.allocations) {
    most = a.where == where ? std::max(most, a.offset + granules(a.bytes)) : most;
  }
  return most;
}

template <class Policies>
class evaluator {
 public:
  constexpr evaluator(space_of<Policies> const& all, hw::machine const& m)
      : space_(all),
        pace_(m, all.rules.bandwidth, all.facts.job.world),
        known_(schedule::prepare(all.facts, all.layout)) {
    take_placements();
  }

  /// Those that the space has got since.
  constexpr void take_placements() {
    while (oversize_.size() < space_.placements.size()) {
      oversize_.push_back(pattern(space_.placements[oversize_.size()]));
    }
  }

  constexpr std::vector<scored> const& results() const { return results_; }
  /// Of all programs so far.
  constexpr std::uint64_t instructions() const { return instructions_; }

  /// Position of the candidate in `results`.
  constexpr std::size_t evaluate(candidate const& c) {
    for (std::size_t i = first_of(c); i < by_assignment_[c.assignment].size(); ++i) {
      scored const& s = results_[by_assignment_[c.assignment][i]];
      if (s.what.placement == c.placement && s.what.buffers == c.buffers &&
          s.what.slots == c.slots) {
        return by_assignment_[c.assignment][i];
      }
    }
    auto const programs = compile(c);
    PROTRAIN_EXPECT(programs.has_value(), "every candidate of a search compiles");
    scored out{.what = c};
    for (schedule::program const& p : *programs) {
      out.time += sim::finish_of(p, durations(p), pace_) * p.times;
      out.device = std::max(out.device, extent_of(p, space::device));
      out.host = std::max(out.host, extent_of(p, space::host));
      out.instructions += p.instructions.size();
    }
    instructions_ += out.instructions;
    remember(out);
    by_assignment_[c.assignment].push_back(results_.size());
    results_.push_back(out);
    return results_.size() - 1;
  }

  /// The bound on a candidate's memory, sharpened by what has been compiled. What is carried is
  /// taken before everything else, so that the rest of the device's arena depends on assignment
  /// and moving oversize chunks only, and the host's on assignment and persistence.
  constexpr cost::live_bytes least_memory(candidate const& c) const {
    cost::placed const& p = space_.placements[c.placement];
    cost::live_bytes out = cost::least_memory(
        space_.layout, space_.step, p, space_.assignments[c.assignment], c.buffers, c.slots);
    std::size_t const assignment = c.assignment;
    if (assignment < above_.size()) {
      for (known const& k : above_[assignment]) {
        if (k.oversize == oversize_[c.placement]) {
          out.device = std::max(out.device, cost::carried_bytes(p, c.buffers, c.slots) + k.device);
        }
        if (k.placement == c.placement) {
          out.host = std::max(out.host, k.host);
        }
      }
    }
    return out;
  }

  /// Everything there is to say about a candidate; a failure when a program is refused.
  constexpr result<prediction> predict(candidate const& c, allowance const& allowed) const {
    auto const programs = compile(c);
    if (!programs) {
      return programs.failure();
    }
    schedule::verdict const verdict = schedule::verify_segments(
        *programs, space_.facts, space_.layout, allowed.device, allowed.host);
    if (!verdict) {
      return error{errc::hazard, verdict.what, verdict.instruction};
    }
    prediction out{.bound = c.bound};
    sim::whole_step step;
    for (schedule::program const& p : *programs) {
      step.add(sim::simulate(p, durations(p), pace_), p.times);
      schedule::follow(out.device, schedule::memory_of(p, space::device));
      schedule::follow(out.host, schedule::memory_of(p, space::host));
    }
    out.iteration = step.iteration;
    out.phases = step.phases;
    out.bound_by = sim::bound_by(step);
    out.busy = step.busy;
    out.exposed = step.exposed;
    for (std::size_t i = 0; i < sim::phase_count; ++i) {
      out.phase_bound_by[i] = sim::bound_by(step, static_cast<sim::phase>(i));
    }
    return out;
  }

 private:
  struct known {
    std::uint32_t oversize = 0;
    std::uint32_t placement = 0;
    std::uint64_t device = 0;  ///< above what is carried
    std::uint64_t host = 0;    ///< in all
  };

  /// The programs of the step that repeats: with deferred updates, one that begins with those of
  /// the step before.
  constexpr result<std::vector<schedule::program>> compile(candidate const& c) const {
    bool const carries = space_.placements[c.placement].defer > 0;
    return schedule::compile_step(
        known_, space_.facts, space_.layout, knobs_of(space_, c), space_.rules.eviction, carries);
  }
  constexpr std::vector<picoseconds> durations(schedule::program const& p) const {
    return sim::durations_of(p, space_.facts, pace_);
  }

  constexpr std::size_t first_of(candidate const& c) {
    while (by_assignment_.size() <= c.assignment) {
      by_assignment_.emplace_back();
      above_.emplace_back();
    }
    return 0;
  }

  constexpr void remember(scored const& s) {
    std::uint64_t const base =
        cost::carried_bytes(space_.placements[s.what.placement], s.what.buffers, s.what.slots);
    known const mine{.oversize = oversize_[s.what.placement],
                     .placement = s.what.placement,
                     .device = s.device > base ? s.device - base : 0,
                     .host = s.host};
    above_[s.what.assignment].push_back(mine);
  }

  /// Number of the set of moving oversize chunks.
  constexpr std::uint32_t pattern(cost::placed const& p) {
    for (std::size_t i = 0; i < patterns_.size(); ++i) {
      if (patterns_[i] == p.moving_oversize) {
        return static_cast<std::uint32_t>(i);
      }
    }
    patterns_.push_back(p.moving_oversize);
    return static_cast<std::uint32_t>(patterns_.size() - 1);
  }

  space_of<Policies> const& space_;
  sim::pace pace_;
  schedule::prepared known_;
  std::vector<std::vector<chunk_id>> patterns_{};
  std::vector<std::uint32_t> oversize_{};  ///< by placement
  std::vector<scored> results_{};
  std::uint64_t instructions_ = 0;
  std::vector<std::vector<std::size_t>> by_assignment_{};
  std::vector<std::vector<known>> above_{};  ///< by assignment
};

}  // namespace protrain::inline v0::plan::detail
