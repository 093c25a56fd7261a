// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program on a virtual clock where the speed of work depends on what else runs: from event to
// event, an event being the end of an instruction.

#include "protrain/core/config.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/sim/pace.hpp"
#include "protrain/sim/timeline.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace protrain::inline v0::sim::detail {

__extension__ using wide = unsigned __int128;

/// Each instruction is work: its time alone times its rate alone. What is left of it shrinks by the
/// rate that it has in the mix of the moment, exactly, and only its end is rounded up, so that none
/// takes less than its time alone and one that is never slowed takes just that. The whole of the work
/// is slowed, a copy's latency too.
class contended {
 public:
  constexpr contended(schedule::program const& p,
                      std::span<picoseconds const> durations,
                      pace const& speeds,
                      timeline& out)
      : program_(p), durations_(durations), pace_(speeds), out_(out) {}
  contended(contended const&) = delete;
  contended& operator=(contended const&) = delete;
  constexpr ~contended() = default;  // nvcc does not take the implicit one for constexpr

  /// Starts and ends, by instruction; returns for each the one that it waited for last.
  constexpr std::vector<std::uint32_t> run() {
    enqueue();
    start_ready();
    for (std::uint32_t now_runs = mix(); now_runs != 0; now_runs = mix()) {
      follow(now_runs);
      now_ = soonest();
      end_due();
      start_ready();
    }
    return waited_;
  }

 private:
  static constexpr picoseconds never{std::numeric_limits<std::uint64_t>::max()};

  struct lane {
    std::uint32_t next = no_instruction;      ///< to start
    std::uint32_t met = 0;                    ///< dependencies of `next` that have ended
    std::uint32_t previous = no_instruction;  ///< that has ended
    std::uint32_t running = no_instruction;
    std::size_t need = 0;    ///< of what runs
    std::uint64_t rate = 0;  ///< that it has...
    picoseconds since{};     ///< ...from here on
    wide left = 0;           ///< of its work, at `since`
    picoseconds end{};       ///< if nothing changes
  };

  constexpr void enqueue() {
    auto const n = static_cast<std::uint32_t>(program_.instructions.size());
    out_.at = std::vector<interval>(n, interval{never, never});
    waited_ = std::vector<std::uint32_t>(n, no_instruction);
    following_ = std::vector<std::uint32_t>(n, no_instruction);
    for (std::uint32_t i = n; i-- > 0;) {
      lane& l = lanes_[index_of(program_.instructions[i].queue)];
      following_[i] = l.next;
      l.next = i;
    }
  }

  constexpr bool ready(lane& l) const {
    if (l.running != no_instruction || l.next == no_instruction) {
      return false;
    }
    auto const needs = program_.dependencies_of(program_.instructions[l.next]);
    while (l.met < needs.size()) {
      PROTRAIN_EXPECT(needs[l.met] < l.next, "a dependency is an earlier instruction");
      if (out_.at[needs[l.met]].end == never) {
        return false;
      }
      ++l.met;
    }
    return true;
  }

  /// What takes no time may let other queues start in the same moment.
  constexpr void start_ready() {
    for (bool again = true; again;) {
      again = false;
      for (lane& l : lanes_) {
        while (ready(l)) {
          start(l);
          again = again || l.running == no_instruction;
        }
      }
    }
  }

  constexpr void start(lane& l) {
    std::uint32_t const i = l.next;
    waited_[i] = start_of(program_, i, l.previous, out_.at).cause;
    out_.at[i].start = now_;
    l.next = following_[i];
    l.met = 0;
    if (durations_[i] == picoseconds{}) {
      out_.at[i].end = now_;
      l.previous = i;
      return;
    }
    l.running = i;
    l.need = need_of(program_.instructions[i]);
    l.rate = l.need == compute_need ? 1 : pace_.alone(l.need);
    l.since = now_;
    l.left = static_cast<wide>(durations_[i].value) * l.rate;
    l.end = now_ + durations_[i];
  }

  constexpr std::uint32_t mix() const {
    std::uint32_t out = 0;
    for (lane const& l : lanes_) {
      out += l.running != no_instruction ? unit_of[l.need] : 0;
    }
    return out;
  }

  constexpr void follow(std::uint32_t mix) {
    pace::row const& rates = pace_.among(mix);
    for (lane& l : lanes_) {
      if (l.running != no_instruction && l.need != compute_need && l.rate != rates[l.need]) {
        l.left -= static_cast<wide>((now_ - l.since).value) * l.rate;
        l.since = now_;
        l.rate = rates[l.need];
        l.end = now_ + whole_time(l.left, l.rate);
      }
    }
  }

  static constexpr picoseconds whole_time(wide work, std::uint64_t rate) {
    wide const time = (work + (rate - 1)) / rate;
    PROTRAIN_EXPECT(time < never.value, "a duration overflows 64 bits of picoseconds");
    return {static_cast<std::uint64_t>(time)};
  }

  constexpr picoseconds soonest() const {
    picoseconds out = never;
    for (lane const& l : lanes_) {
      out = l.running != no_instruction ? std::min(out, l.end) : out;
    }
    return out;
  }

  constexpr void end_due() {
    for (lane& l : lanes_) {
      if (l.running != no_instruction && l.end == now_) {
        interval& at = out_.at[l.running];
        at.end = now_;
        out_.busy[index_of(program_.instructions[l.running].queue)] += at.end - at.start;
        l.previous = l.running;
        l.running = no_instruction;
      }
    }
  }

  schedule::program const& program_;
  std::span<picoseconds const> durations_;
  pace const& pace_;
  timeline& out_;
  picoseconds now_{};
  // A vector, because nvcc's constant evaluation doesn't destroy the elements of an array.
  std::vector<lane> lanes_ = std::vector<lane>(queue_count, lane{});  ///< by queue
  std::vector<std::uint32_t> waited_{};
  std::vector<std::uint32_t> following_{};  ///< on the same queue, by instruction
};

}  // namespace protrain::inline v0::sim::detail
