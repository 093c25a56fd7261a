// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ways to train side by side, a line each.

#include "protrain/model/job.hpp"
#include "protrain/plan/compare.hpp"
#include "protrain/plan/infeasible.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/report/format.hpp"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

inline std::string comparison_line(plan::plan const& p) {
  double const seconds = std::max(p.predicted.iteration.seconds(), 1e-12);
  auto const tokens = static_cast<double>(model::tokens_per_step(p.trace.job));
  return right(human_time(p.predicted.iteration), 10) + right(fixed(tokens / seconds, 0), 12) +
         right(human_bytes(p.predicted.device.peak), 12) +
         right(human_bytes(p.predicted.host.peak), 12) + "  " + std::string(p.string().view());
}

inline std::string comparison_line(plan::infeasible const& f) {
  if (!f.lacks_memory()) {
    return "  refused: " + std::string(f.reason);
  }
  std::string out;
  for (auto const& [bytes, where] :
       {std::pair(f.short_device, "device"), std::pair(f.short_host, "host")}) {
    if (bytes > 0) {
      out += (out.empty() ? "" : " and ") + human_bytes(bytes) + " on the " + where;
    }
  }
  return "  does not fit: short by " + out;
}

}  // namespace detail

/// A head, then a line for each way.
inline std::string comparison_table(std::vector<plan::contender> const& all) {
  std::string out = left("compare", 18) + right("a step", 10) + right("tokens/s", 12) +
                    right("device", 12) + right("host", 12) + "  plan\n";
  for (plan::contender const& c : all) {
    out += left("  " + std::string(c.name), 18) +
           (c.answer ? detail::comparison_line(*c.answer)
                     : detail::comparison_line(c.answer.failure())) +
           "\n";
  }
  return out;
}

}  // namespace protrain::inline v0::report
