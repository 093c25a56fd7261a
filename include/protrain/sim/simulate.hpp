// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program on a virtual clock: when each instruction starts and ends, what each queue does, and
// what the step's time is made of.

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/detail/contended.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::sim {

namespace detail {

/// Starts and ends; returns for each instruction the one that it waited for last. Every
/// dependency is an earlier instruction and queues run in program order, so one pass in program
/// order finds the same times as following events would.
constexpr std::vector<std::uint32_t> place(schedule::program const& p,
                                           std::span<picoseconds const> durations,
                                           timeline& out) {
  std::vector<std::uint32_t> waited{};
  waited.reserve(p.instructions.size());
  out.at.reserve(p.instructions.size());
  per_queue<std::uint32_t> last{};
  last.fill(no_instruction);
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    std::size_t const q = index_of(p.instructions[i].queue);
    beginning const from = start_of(p, i, last[q], out.at);
    waited.push_back(from.cause);
    out.at.push_back({from.time, from.time + durations[i]});
    out.busy[q] += durations[i];
    last[q] = i;
  }
  return waited;
}

/// Likewise, event by event where work slows other work.
constexpr std::vector<std::uint32_t> place(schedule::program const& p,
                                           std::span<picoseconds const> durations,
                                           pace const& speeds,
                                           timeline& out) {
  if (!speeds.contended()) {
    return place(p, durations, out);
  }
  contended events(p, durations, speeds, out);
  return events.run();
}

/// Ends of the phases in order of time: forward and backward of each micro-batch, then the step.
constexpr std::vector<picoseconds> split_phases(schedule::program const& p, timeline& out) {
  std::vector<picoseconds> ends(2 * std::size_t{p.micro_batches}, picoseconds{});
  for (std::size_t i = 0; i < out.at.size(); ++i) {
    schedule::instruction const& what = p.instructions[i];
    bool const forward = what.op == schedule::opcode::forward;
    if (forward || what.op == schedule::opcode::backward) {
      ends[2 * std::size_t{what.micro_batch} + (forward ? 0 : 1)] = out.at[i].end;
    }
    out.finish = std::max(out.finish, out.at[i].end);
  }
  ends.push_back(out.finish);
  picoseconds before{};
  for (std::size_t k = 0; k < ends.size(); ++k) {
    ends[k] = std::max(ends[k], before);
    bool const update = k + 1 == ends.size();
    out.phases[update ? 2 : k % 2] += ends[k] - before;
    before = ends[k];
  }
  out.forward_end = ends.size() > 2 ? ends[ends.size() - 3] : picoseconds{};
  out.backward_end = ends.size() > 1 ? ends[ends.size() - 2] : picoseconds{};
  return ends;
}

/// Follows what was waited for from the instruction that ends last to the start of the step.
constexpr void follow_critical(schedule::program const& p,
                               std::vector<std::uint32_t> const& waited,
                               std::vector<picoseconds> const& ends,
                               timeline& out) {
  std::uint32_t i = no_instruction;
  for (std::uint32_t k = 0; k < out.at.size() && i == no_instruction; ++k) {
    i = out.at[k].end == out.finish ? k : no_instruction;
  }
  std::size_t window = ends.size() - 1;
  for (; i != no_instruction; i = waited[i]) {
    picoseconds end = out.at[i].end;
    std::size_t const q = index_of(p.instructions[i].queue);
    while (true) {
      picoseconds const opens = window == 0 ? picoseconds{} : ends[window - 1];
      picoseconds const from = std::max(out.at[i].start, std::min(opens, end));
      out.critical[window + 1 == ends.size() ? 2 : window % 2][q] += end - from;
      end = from;
      if (out.at[i].start >= opens) {
        break;
      }
      --window;
    }
  }
}

/// Time of each queue outside the busy time of `compute`: both lists are in order of time.
constexpr void expose(schedule::program const& p, timeline& out) {
  std::vector<interval> computing{};
  for (std::size_t i = 0; i < out.at.size(); ++i) {
    if (p.instructions[i].queue == queue_id::compute && out.at[i].start < out.at[i].end) {
      if (!computing.empty() && computing.back().end == out.at[i].start) {
        computing.back().end = out.at[i].end;
      } else {
        computing.push_back(out.at[i]);
      }
    }
  }
  per_queue<std::size_t> next{};
  for (std::size_t i = 0; i < out.at.size(); ++i) {
    std::size_t const q = index_of(p.instructions[i].queue);
    if (p.instructions[i].queue == queue_id::compute) {
      continue;
    }
    interval const mine = out.at[i];
    std::size_t& k = next[q];
    while (k < computing.size() && computing[k].end <= mine.start) {
      ++k;
    }
    picoseconds hidden{};
    for (std::size_t n = k; n < computing.size() && computing[n].start < mine.end; ++n) {
      hidden += std::min(computing[n].end, mine.end) - std::max(computing[n].start, mine.start);
    }
    out.exposed[q] += mine.end - mine.start - hidden;
  }
}

/// What the starts and ends in `out` add up to.
constexpr void sum_up(schedule::program const& p,
                      std::vector<std::uint32_t> const& waited,
                      timeline& out) {
  std::vector<picoseconds> const ends = split_phases(p, out);
  follow_critical(p, waited, ends, out);
  expose(p, out);
}

constexpr picoseconds last_end(timeline const& t) {
  picoseconds last{};
  for (interval const& i : t.at) {
    last = std::max(last, i.end);
  }
  return last;
}

}  // namespace detail

/// Runs `p` with one duration per instruction: queues in program order, an instruction when its
/// queue is free and its dependencies have ended. O(instructions + dependencies).
constexpr timeline simulate(schedule::program const& p, std::span<picoseconds const> durations) {
  PROTRAIN_EXPECT(durations.size() == p.instructions.size(), "one duration per instruction");
  timeline out{};
  std::vector<std::uint32_t> const waited = detail::place(p, durations, out);
  detail::sum_up(p, waited, out);
  return out;
}

/// Likewise, at a machine's pace: what runs at once slows each other as the bandwidth policy says,
/// and `durations` (`durations_of(p, trace, speeds)`) are those of instructions that run alone. Never
/// earlier than at these. O(instructions x queues + dependencies).
constexpr timeline simulate(schedule::program const& p,
                            std::span<picoseconds const> durations,
                            pace const& speeds) {
  PROTRAIN_EXPECT(durations.size() == p.instructions.size(), "one duration per instruction");
  timeline out{};
  std::vector<std::uint32_t> const waited = detail::place(p, durations, speeds, out);
  detail::sum_up(p, waited, out);
  return out;
}

/// The queue with the largest share, the first of equals.
constexpr queue_id largest_share(per_queue<picoseconds> const& shares) {
  return static_cast<queue_id>(std::ranges::max_element(shares) - shares.begin());
}

constexpr per_queue<picoseconds> sum_of(per_phase<per_queue<picoseconds>> const& all) {
  per_queue<picoseconds> sum{};
  for (per_queue<picoseconds> const& shares : all) {
    for (std::size_t q = 0; q < queue_count; ++q) {
      sum[q] += shares[q];
    }
  }
  return sum;
}

/// The queue that a phase mostly waits for: the largest share of the critical chain.
constexpr queue_id bound_by(timeline const& t, phase p) {
  return largest_share(t.critical[static_cast<std::size_t>(p)]);
}

/// The same for the whole program.
constexpr queue_id bound_by(timeline const& t) { return largest_share(sum_of(t.critical)); }

/// Only the time: what a search needs of each candidate. Equal to `simulate(...).finish`.
constexpr picoseconds finish_of(schedule::program const& p,
                                std::span<picoseconds const> durations) {
  PROTRAIN_EXPECT(durations.size() == p.instructions.size(), "one duration per instruction");
  timeline out{};
  detail::place(p, durations, out);
  return detail::last_end(out);
}
constexpr picoseconds finish_of(schedule::program const& p,
                                std::span<picoseconds const> durations,
                                pace const& speeds) {
  PROTRAIN_EXPECT(durations.size() == p.instructions.size(), "one duration per instruction");
  timeline out{};
  detail::place(p, durations, speeds, out);
  return detail::last_end(out);
}

}  // namespace protrain::inline v0::sim
