// SPDX-License-Identifier: Apache-2.0
#pragma once
// What each knob of a plan does to its time and its peaks, a line each.

#include "protrain/core/units.hpp"
#include "protrain/plan/effects.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/report/format.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace protrain::inline v0::report {

namespace detail {

/// What the plan string says of `key`; a long list is cut.
inline std::string value_of(plan::numbers const& n, std::string_view key) {
  constexpr std::size_t most = 16;
  std::string const all = "," + std::string(plan::print(n).view()) + ",";
  std::string const item = "," + std::string(key) + "=";
  std::size_t const at = all.find(item);
  if (at == std::string::npos) {
    return "as usual";
  }
  std::size_t const from = at + item.size();
  std::string const value = all.substr(from, all.find(',', from) - from);
  return value.size() > most ? value.substr(0, most) + ".." : value;
}

/// "+1.00 GiB", "-3.00 MiB" or "as much".
inline std::string change(std::uint64_t from, std::uint64_t to) {
  if (from == to) {
    return "as much";
  }
  return to > from ? "+" + human_bytes(to - from) : "-" + human_bytes(from - to);
}

inline std::string change(picoseconds from, picoseconds to) {
  if (from == to) {
    return "as long";
  }
  return to > from ? "+" + human_time(to - from) : "-" + human_time(from - to);
}

}  // namespace detail

/// "knob        swap=2 -> 0: 5.31 ms a step (+0.21 ms), 3.00 MiB on the device (+1.00 MiB), ..."
inline std::string knob_table(plan::plan const& p, std::vector<plan::knob_effect> const& effects) {
  std::string out;
  for (plan::knob_effect const& e : effects) {
    std::uint64_t const device = e.device_peak.value;
    std::uint64_t const host = e.host_peak.value;
    out += "knob        " + std::string(e.knob) + "=" + detail::value_of(p.at, e.knob) + " -> " +
           detail::value_of(e.at, e.knob) + ": " + human_time(e.iteration) + " a step (" +
           detail::change(p.predicted.iteration, e.iteration) + "), " + human_bytes(device) +
           " on the device (" + detail::change(p.predicted.device.peak, device) + "), " +
           human_bytes(host) + " on the host (" + detail::change(p.predicted.host.peak, host) +
           ")\n";
  }
  return out;
}

}  // namespace protrain::inline v0::report
