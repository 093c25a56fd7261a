// SPDX-License-Identifier: Apache-2.0
#pragma once
// What else an answer of planning says, as text: what a little more would buy, and memory by time.

#include "protrain/core/units.hpp"
#include "protrain/model/job.hpp"
#include "protrain/plan/explain.hpp"
#include "protrain/plan/memory_over_time.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/sensitivity.hpp"
#include "protrain/report/format.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

inline std::string saving(plan::sensitivity const& s) {
  return s.saved.value == 0 ? "saves nothing" : "saves " + human_time(s.saved) + " a step";
}

inline std::string tokens_per_second(std::uint64_t tokens, picoseconds iteration) {
  double const seconds = std::max(iteration.seconds(), 1e-12);
  return human_count(static_cast<std::uint64_t>(static_cast<double>(tokens) / seconds));
}

inline std::string rank_line(plan::plan const& p, plan::another_rank const& r) {
  if (r.world == 0) {
    return "a rank more has no device: the machine has no more than there are ranks";
  }
  if (!r.fits) {
    return "a rank more: " + std::string(r.lacks.explanation().view());
  }
  return "a rank more takes " + human_time(r.iteration) + " for a step of " +
         human_count(r.tokens) + " tokens: " + tokens_per_second(r.tokens, r.iteration) +
         " tokens/s instead of " +
         tokens_per_second(model::tokens_per_step(p.trace.job), p.predicted.iteration);
}

/// Digits of `n` in the unit that suits `most`.
inline std::string in_unit_of(std::uint64_t most, std::uint64_t n) {
  std::size_t unit = 0;
  while (unit < 5 && most >> (10 * (unit + 1)) > 0) {
    ++unit;
  }
  auto const one = static_cast<double>(std::uint64_t{1} << (10 * unit));
  return fixed(static_cast<double>(n) / one, unit == 0 ? 0 : 1);
}

inline std::string filled_line(std::string const& where, std::vector<std::uint64_t> const& parts) {
  std::uint64_t const most = parts.empty() ? 0 : *std::ranges::max_element(parts);
  std::string const unit = human_bytes(most);
  std::string out = left("  " + where + ", " + unit.substr(unit.find(' ') + 1), 18);
  for (std::uint64_t const n : parts) {
    out += right(in_unit_of(most, n), 7);
  }
  return out + "\n";
}

}  // namespace detail

/// A line each for memory, bandwidth and ranks.
inline std::string sensitivity_lines(plan::plan const& p, plan::explanation const& e) {
  std::string const head = "sensitivity ";
  return head + human_bytes(e.gpu.more.value) + " more of device memory " + detail::saving(e.gpu) +
         "\n" + head + std::to_string(plan::more_bandwidth_percent) +
         " % more bandwidth to and from the host " + detail::saving(e.bandwidth) + "\n" + head +
         detail::rank_line(p, e.rank) + "\n";
}

/// How far memory is filled in each part of a step.
inline std::string filled_lines(plan::memory_over_time const& m) {
  return "filled at most in each of " + std::to_string(m.device.size()) +
         " equal parts of a step\n" + detail::filled_line("device", m.device) +
         detail::filled_line("host", m.host);
}

}  // namespace protrain::inline v0::report
