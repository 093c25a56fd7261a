// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sizes of the micro-batch that were looked at, a line each, in ascending order.

#include "protrain/plan/micro_batch.hpp"
#include "protrain/report/format.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace protrain::inline v0::report {

/// A head, then a line for each size; the chosen one has a star.
inline std::string micro_batch_table(plan::micro_batch_answer const& answer) {
  std::vector<plan::micro_batch_seen> sorted = answer.seen;
  std::ranges::sort(sorted, {}, &plan::micro_batch_seen::micro_batch);
  std::string out = left("micro-batch", 18) + right("a step", 10) + right("tokens/s", 12) +
                    right("device", 12) + "\n";
  for (plan::micro_batch_seen const& s : sorted) {
    bool const chosen = s.fits && s.micro_batch == answer.micro_batch;
    out += left((chosen ? "* " : "  ") + std::to_string(s.micro_batch), 18);
    out += s.fits ? right(human_time(s.iteration), 10) +
                        right(fixed(plan::tokens_per_second(s), 0), 12) +
                        right(human_bytes(s.device_peak), 12)
                  : "  does not fit";
    out += "\n";
  }
  return out +
         (answer.limited ? "  more sizes may be faster: the limit of searches was met\n" : "");
}

}  // namespace protrain::inline v0::report
