// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a step hangs on, as text: a line per queue, and one for each thing that it waits for.

#include "protrain/core/queue.hpp"
#include "protrain/report/format.hpp"
#include "protrain/runtime/stall.hpp"
#include "protrain/schedule/print.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <string>

namespace protrain::inline v0::report {

namespace detail {

inline std::string instruction_line(runtime::placed_instruction const& at,
                                    trace::trace const& facts) {
  return "instruction " + std::to_string(at.index) + ", " +
         std::string(schedule::print(at.what, facts).view());
}

}  // namespace detail

/// The line of the queue to look at first begins with a star.
inline std::string stall_dump(runtime::stall const& s, trace::trace const& facts) {
  std::string out = "rank " + std::to_string(s.rank) + ", " +
                    std::string(schedule::name_of(s.part)) + ": no queue got on for " +
                    fixed(s.seconds, 3) + " s\n";
  for (runtime::queue_state const& q : s.queues) {
    out += (&q == s.culprit() ? "* " : "  ") + left(name_of(q.queue), 8);
    if (q.doing == runtime::queue_doing::nothing) {
      out += std::string(name_of(q.doing)) + "\n";
      continue;
    }
    out += left(name_of(q.doing), 7) + detail::instruction_line(q.head, facts) + ", for " +
           fixed(q.seconds, 3) + " s";
    for (std::uint32_t const r : q.ranks) {
      out += ", rank " + std::to_string(r) + " is missing";
    }
    out += '\n';
    for (runtime::placed_instruction const& d : q.waits_for) {
      out += std::string(10, ' ') + "for " + std::string(name_of(d.what.queue)) + " " +
             detail::instruction_line(d, facts) + "\n";
    }
  }
  return out;
}

}  // namespace protrain::inline v0::report
