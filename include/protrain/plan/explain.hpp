// SPDX-License-Identifier: Apache-2.0
#pragma once
// Why this plan: what bounds its phases, what else was possible, and what a little more would buy.

#include "protrain/core/text.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/limits.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/sensitivity.hpp"
#include "protrain/sim/simulate.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::plan {

struct explanation {
  sensitivity gpu{};        ///< memory
  sensitivity bandwidth{};  ///< between host and device
  another_rank rank{};
  text why{};  ///< lines for people
  bool operator==(explanation const&) const = default;
};

/// Appends a time for people: three decimals in s, ms, us or ns.
constexpr void append_time(text& out, picoseconds t) {
  struct unit {
    std::uint64_t ps;
    std::string_view name;
  };
  constexpr std::array<unit, 4> units{
      {{1'000'000'000'000, " s"}, {1'000'000'000, " ms"}, {1'000'000, " us"}, {1'000, " ns"}}};
  std::size_t i = 0;
  while (i + 1 < units.size() && t.value < units[i].ps) {
    ++i;
  }
  std::uint64_t const thousandths = t.value / (units[i].ps / 1000);
  out += thousandths / 1000;
  out += ".";
  for (std::uint64_t digit = 100; digit > 0; digit /= 10) {
    out += thousandths / digit % 10;
  }
  out += units[i].name;
}

namespace detail {

constexpr text reasons(plan const& p) {
  text out = "a step takes ";
  append_time(out, p.predicted.iteration);
  out += ", mostly bound by ";
  out += name_of(p.predicted.bound_by);
  for (std::size_t i = 0; i < sim::phase_count; ++i) {
    out += "\n  ";
    out += sim::name_of(static_cast<sim::phase>(i));
    out += " ";
    append_time(out, p.predicted.phases[i]);
    if (p.predicted.phases[i].value > 0) {
      out += " bound by ";
      out += name_of(p.predicted.phase_bound_by[i]);
    }
  }
  if (p.at.streamed > 0) {
    out += "\n  of ";
    out += std::uint64_t{p.at.moving};
    out += " chunks in host memory ";
    out += std::uint64_t{p.at.streamed};
    out += " are updated on the GPU, the rest on the CPU";
  }
  out += p.search.proven ? std::string_view("\nno plan of the searched space is faster")
                         : std::string_view("\nthe search met its limit: at best ");
  if (!p.search.proven) {
    append_time(out, p.search.bound);
    out += " is possible";
  }
  for (alternative const& a : p.runner_up) {
    out += "\n  instead ";
    out += a.name.empty() ? print(a.at).view() : a.name.view();
    out += ": ";
    append_time(out, a.iteration);
  }
  return out;
}

constexpr void add_saving(text& out, sensitivity const& s) {
  if (s.saved.value == 0) {
    out += "saves nothing";
    return;
  }
  out += "saves ";
  append_time(out, s.saved);
  out += " a step";
}

constexpr void add_rank(text& out, another_rank const& r) {
  if (r.world == 0) {
    out += "the machine has no device for another rank";
    return;
  }
  out += "on a rank more ";
  if (r.fits) {
    out += r.tokens;
    out += " tokens take ";
    append_time(out, r.iteration);
  } else {
    out += r.lacks.explanation().view();
  }
}

constexpr void add_sensitivities(explanation& out) {
  out.why += "\n";
  append_size(out.why, out.gpu.more.value);
  out.why += " more of GPU memory ";
  add_saving(out.why, out.gpu);
  out.why += "\n";
  out.why += more_bandwidth_percent;
  out.why += " % more bandwidth to and from the host ";
  add_saving(out.why, out.bandwidth);
  out.why += "\n";
  add_rank(out.why, out.rank);
}

}  // namespace detail

/// Explains `p`, which `rules` made for `m`, `b` and `wanted`. Searches three times more: with more
/// GPU memory, with more bandwidth, and on one rank more where the machine has it.
template <class Policies = policies<>>
constexpr explanation explain(plan const& p,
                              hw::machine const& m,
                              budget const& b,
                              Policies const& rules = {},
                              request const& wanted = {},
                              limits const& most = {}) {
  explanation out{.gpu = more_memory(p, m, b, rules, wanted, most),
                  .bandwidth = more_bandwidth(p, m, b, rules, wanted, most),
                  .rank = one_rank_more(p, m, b, rules, wanted, most),
                  .why = detail::reasons(p)};
  detail::add_sensitivities(out);
  return out;
}

}  // namespace protrain::inline v0::plan
