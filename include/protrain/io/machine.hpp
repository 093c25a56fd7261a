// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machines as JSON files, one member per figure with its unit in the name. What a rank gets while
// something else runs may be missing: it is then what it gets alone.

#include "protrain/hw/machine.hpp"
#include "protrain/io/json.hpp"

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::io {

namespace detail {

/// Calls see(name, rate) for each member of "concurrent".
template <class Rates, class See>
void each_concurrent(Rates& c, See const& see) {
  auto const both = [&](std::string const& when, auto& copies) {
    see(when + "_host_to_device_bytes_per_second", copies.host_to_device);
    see(when + "_device_to_host_bytes_per_second", copies.device_to_host);
  };
  both("both_ways", c.both_ways);
  both("beside_compute", c.beside_compute);
  both("beside_update", c.beside_update);
  both("all_ranks", c.all_ranks);
  see(std::string("update_beside_copies_bytes_per_second"), c.update_beside_copies);
}

inline json concurrent_json(hw::concurrent_rates const& c) {
  json out = json::object();
  each_concurrent(c, [&](std::string const& name, bandwidth const& rate) {
    if (rate.per_second > 0) {
      out[name] = rate.per_second;
    }
  });
  return out;
}

inline hw::concurrent_rates parse_concurrent(json_field const& f, std::uint64_t most) {
  hw::concurrent_rates out{};
  std::vector<std::string> names;
  each_concurrent(out, [&](std::string const& name, bandwidth& rate) {
    names.push_back(name);
    if (auto const given = f.find(name.c_str())) {
      rate.per_second = given->integer(1, most);
    }
  });
  std::vector<std::string_view> const known(names.begin(), names.end());
  f.allow_only(known);
  return out;
}

/// Calls see(name, rate) for each rate of "peak".
template <class Rates, class See>
void each_peak(Rates& p, See const& see) {
  see("fp32_flop_per_second", p.fp32.per_second);
  see("half_flop_per_second", p.half.per_second);
  see("device_memory_bytes_per_second", p.device_memory.per_second);
  see("link_bytes_per_second", p.link.per_second);
}

inline json peak_json(hw::peak_rates const& p) {
  json out{{"source", p.source.view()}};
  each_peak(p, [&](char const* name, std::uint64_t per_second) {
    if (per_second > 0) {
      out[name] = per_second;
    }
  });
  return out;
}

/// Its source must be there: a peak without one can't be compared with anything.
inline hw::peak_rates parse_peak(json_field const& f, std::uint64_t most) {
  hw::peak_rates out{.source = text(f.at("source").string())};
  std::vector<std::string_view> known{"source"};
  each_peak(out, [&](char const* name, std::uint64_t& per_second) {
    known.emplace_back(name);
    if (auto const given = f.find(name)) {
      per_second = given->integer(1, most);
    }
  });
  f.allow_only(known);
  return out;
}

}  // namespace detail

inline json to_json(hw::machine const& m) {
  json out{{"protrain", "machine"},
           {"version", 1},
           {"name", m.name.view()},
           {"source", m.source.view()},
           {"devices", m.devices},
           {"device_memory_bytes", m.device_memory.value},
           {"host_memory_bytes", m.host_memory.value},
           {"host_to_device_bytes_per_second", m.host_to_device.per_second},
           {"device_to_host_bytes_per_second", m.device_to_host.per_second},
           {"copy_latency_ps", m.copy_latency.value},
           {"device_memory_bytes_per_second", m.device_bandwidth.per_second},
           {"host_memory_bytes_per_second", m.host_bandwidth.per_second},
           {"host_threads", m.host_threads},
           {"fp32_flop_per_second", m.compute_fp32.per_second},
           {"half_flop_per_second", m.compute_half.per_second},
           {"collective_bytes_per_second", m.collective.per_second}};
  if (m.usable_threads != 0) {
    out["usable_threads"] = m.usable_threads;
  }
  if (m.collective_latency.value > 0) {
    out["collective_latency_ps"] = m.collective_latency.value;
  }
  if (json concurrent = detail::concurrent_json(m.concurrent); !concurrent.empty()) {
    out["concurrent"] = std::move(concurrent);
  }
  if (m.hosts != 1) {
    out["hosts"] = m.hosts;
  }
  if (m.peak != hw::peak_rates{}) {
    out["peak"] = detail::peak_json(m.peak);
  }
  return out;
}

/// Every figure must be there but `usable_threads`, which means all, `collective_latency_ps`, `hosts`
/// (one) and those in `concurrent` and `peak`; rates are positive.
inline hw::machine parse_machine(json_field const& top) {
  check_head(top, "machine");
  top.allow_only({"protrain",
                  "version",
                  "name",
                  "source",
                  "devices",
                  "device_memory_bytes",
                  "host_memory_bytes",
                  "host_to_device_bytes_per_second",
                  "device_to_host_bytes_per_second",
                  "copy_latency_ps",
                  "device_memory_bytes_per_second",
                  "host_memory_bytes_per_second",
                  "host_threads",
                  "usable_threads",
                  "fp32_flop_per_second",
                  "half_flop_per_second",
                  "collective_bytes_per_second",
                  "collective_latency_ps",
                  "concurrent",
                  "hosts",
                  "peak"});
  constexpr std::uint64_t most = std::uint64_t{1} << 60U;
  constexpr std::uint64_t second = 1'000'000'000'000;
  auto const rate = [&](char const* name) { return top.at(name).integer(1, most); };
  auto const size = [&](char const* name) { return bytes{top.at(name).integer(0, most)}; };
  auto const count = [&](char const* name) {
    return static_cast<std::uint32_t>(top.at(name).integer(1, 1U << 20U));
  };
  auto const latency = top.find("collective_latency_ps");
  auto const concurrent = top.find("concurrent");
  auto const peak = top.find("peak");
  auto const hosts = top.find("hosts");
  constexpr std::uint64_t most_ranks = std::uint64_t{1} << 16U;
  if (std::uint64_t const most_hosts =
          most_ranks / std::min(most_ranks, top.at("devices").integer(1, most_ranks));
      hosts) {
    hosts->integer(1, most_hosts);
  }
  return {.name = text(top.at("name").string()),
          .source = text(top.at("source").string()),
          .devices = count("devices"),
          .device_memory = size("device_memory_bytes"),
          .host_memory = size("host_memory_bytes"),
          .host_to_device = {rate("host_to_device_bytes_per_second")},
          .device_to_host = {rate("device_to_host_bytes_per_second")},
          .copy_latency = {top.at("copy_latency_ps").integer(0, second)},
          .device_bandwidth = {rate("device_memory_bytes_per_second")},
          .host_bandwidth = {rate("host_memory_bytes_per_second")},
          .host_threads = count("host_threads"),
          .usable_threads = top.find("usable_threads") ? count("usable_threads") : 0,
          .compute_fp32 = {rate("fp32_flop_per_second")},
          .compute_half = {rate("half_flop_per_second")},
          .collective = {rate("collective_bytes_per_second")},
          .collective_latency = {latency ? latency->integer(0, second) : 0},
          .concurrent =
              concurrent ? detail::parse_concurrent(*concurrent, most) : hw::concurrent_rates{},
          .hosts = hosts ? count("hosts") : 1,
          .peak = peak ? detail::parse_peak(*peak, most) : hw::peak_rates{}};
}

inline hw::machine read_machine(std::string const& path) {
  json_document const file = read_json(path);
  return parse_machine(file.top());
}

inline void write_machine(std::string const& path, hw::machine const& m) {
  write_file(path, to_json(m).dump(2) + "\n");
}

}  // namespace protrain::inline v0::io
