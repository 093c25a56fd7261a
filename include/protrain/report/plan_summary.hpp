// SPDX-License-Identifier: Apache-2.0
#pragma once
// A plan in words: what it does, why, what bounds it, and what came next.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/report/format.hpp"
#include "protrain/sim/simulate.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

inline std::string count_of(std::size_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

inline std::string placement(plan::plan const& p) {
  std::size_t stay = 0;
  for (std::uint8_t const persistent : p.knobs.persistent) {
    stay += persistent != 0 ? 1U : 0U;
  }
  std::size_t const chunks = p.layout.chunks.size();
  std::string out = std::to_string(stay) + " of " + count_of(chunks, "chunk") + " of " +
                    human_bytes(p.at.chunk) + " on the device";
  if (stay < chunks) {
    out += ", the rest in host memory through " + count_of(p.knobs.buffers, "buffer");
  }
  if (p.at.streamed > 0) {
    out += "; " + std::to_string(p.at.streamed) + " streamed through the device for their updates";
  }
  return out;
}

/// " (2 at level cheap, ..)"; empty where every kept block keeps everything.
inline std::string levels(plan::plan const& p) {
  std::vector<std::pair<std::string, std::size_t>> at;
  for (std::size_t b = 0; b < p.knobs.levels.size(); ++b) {
    if (std::uint8_t const k = p.knobs.levels[b]; k > 0) {
      std::string const name(p.trace.shape(make_id<block_id>(b)).levels[k - 1U].name.view());
      auto const known = std::ranges::find(at, name, &std::pair<std::string, std::size_t>::first);
      if (known == at.end()) {
        at.emplace_back(name, 1);
      } else {
        ++known->second;
      }
    }
  }
  std::string out;
  for (auto const& [name, n] : at) {
    out += (out.empty() ? " (" : ", ") + std::to_string(n) + " at level " + name;
  }
  return out.empty() ? out : out + ")";
}

inline std::string strategies(plan::plan const& p) {
  std::array<std::size_t, 3> n{};
  for (activation::strategy const s : p.knobs.strategies) {
    ++n[static_cast<std::size_t>(s)];
  }
  return std::to_string(n[0]) + " kept" + levels(p) + ", " + std::to_string(n[1]) +
         " checkpointed, " + std::to_string(n[2]) + " swapped";
}

inline std::string phases(plan::prediction const& p) {
  std::string out;
  for (std::size_t i = 0; i < sim::phase_count; ++i) {
    if (p.phases[i].value > 0) {
      out += out.empty() ? "" : ", ";
      out += std::string(sim::name_of(static_cast<sim::phase>(i))) + " " + human_time(p.phases[i]) +
             " (" + std::string(name_of(p.phase_bound_by[i])) + ")";
    }
  }
  return out;
}

inline std::string why(plan::plan const& p) {
  std::string const out = "fastest of " + count_of(p.search.candidates, "candidate") + ", " +
                          count_of(p.search.compiled, "program") + " simulated";
  if (p.search.proven) {
    return out + "; no plan of the space is faster";
  }
  return out + "; the search met its limit, no plan can be below " + human_time(p.search.bound);
}

}  // namespace detail

/// Several lines; the first is the plan string.
inline std::string plan_summary(plan::plan const& p) {
  std::string out = "plan        " + std::string(p.string().view()) + "\n";
  for (text const& line : p.changed) {
    out += "changed     " + std::string(line.view()) + ", the nearest that this job has\n";
  }
  out += "model state " + detail::placement(p) + "\n";
  out += "activations " + detail::strategies(p) + "\n";
  out += "predicted   " + human_time(p.predicted.iteration) + " a step, " +
         human_count(
             static_cast<std::uint64_t>(static_cast<double>(model::tokens_per_step(p.trace.job)) /
                                        std::max(p.predicted.iteration.seconds(), 1e-12))) +
         " tokens/s, " + human_bytes(p.predicted.device.peak) + " on the device, " +
         human_bytes(p.predicted.host.peak) + " on the host\n";
  out += "bound by    " + std::string(name_of(p.predicted.bound_by)) + ": " +
         detail::phases(p.predicted) + "\n";
  out += "why         " + detail::why(p) + "\n";
  std::size_t shown = 0;
  for (plan::alternative const& a : p.runner_up) {
    if (++shown > 4) {
      break;
    }
    out += "instead     " + human_time(a.iteration) + ", " + human_bytes(a.device_peak) + ": ";
    out += a.name.empty() ? std::string(plan::print(a.at).view()) : std::string(a.name.view());
    out += "\n";
  }
  return out;
}

}  // namespace protrain::inline v0::report
