// SPDX-License-Identifier: Apache-2.0
// Machines by name.

#include "protrain/hw/presets.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string_view>
#include <utility>

namespace presets_test {

namespace {

using namespace protrain;

TEST_CASE("every preset has its name, a source, memory and rates") {
  for (auto const name : hw::preset_names) {
    auto const m = hw::preset(name);
    REQUIRE(m.has_value());
    CHECK(m->name.view() == name);
    CHECK_FALSE(m->source.empty());
    CHECK(m->devices > 0);
    CHECK(m->device_memory > bytes{});
    CHECK(m->host_memory > bytes{});
    CHECK(m->host_threads > 0);
    for (bandwidth const r : {m->host_to_device,
                              m->device_to_host,
                              m->device_bandwidth,
                              m->host_bandwidth,
                              m->collective}) {
      CHECK(r.per_second > 0);
    }
    CHECK(hw::compute_rate(*m, dtype::f32) == m->compute_fp32);
    CHECK(hw::compute_rate(*m, dtype::bf16) == m->compute_half);
    CHECK(hw::compute_rate(*m, dtype::f16) == m->compute_half);
    CHECK(m->compute_fp32.per_second > 0);
    CHECK(m->compute_half >= m->compute_fp32);
  }
}

TEST_CASE("what a preset gets together is at most what it gets alone") {
  for (auto const name : hw::preset_names) {
    hw::machine const m = *hw::preset(name);
    for (hw::copy_rates const& of : {m.concurrent.both_ways,
                                     m.concurrent.beside_compute,
                                     m.concurrent.beside_update,
                                     m.concurrent.all_ranks}) {
      CHECK(of.host_to_device <= m.host_to_device);
      CHECK(of.device_to_host <= m.device_to_host);
    }
    CHECK(m.concurrent.update_beside_copies <= m.host_bandwidth);
    CHECK(hw::collective_latency(m) >= m.copy_latency);
  }
}

TEST_CASE("what a preset gets is at most what the data sheet promises") {
  for (auto const name : hw::preset_names) {
    hw::machine const m = *hw::preset(name);
    CAPTURE(name);
    if (name == "host-demo") {  // which has no data sheet
      CHECK(m.peak == hw::peak_rates{});
      continue;
    }
    CHECK_FALSE(m.peak.source.empty());
    CHECK(m.peak.source.view().find("dense") != std::string_view::npos);
    CHECK(m.compute_fp32 <= m.peak.fp32);
    CHECK(m.compute_half <= m.peak.half);
    CHECK(m.device_bandwidth <= m.peak.device_memory);
    CHECK(m.host_to_device <= m.peak.link);
    CHECK(m.device_to_host <= m.peak.link);
    CHECK(2 * m.compute_half.per_second > m.peak.half.per_second);  // and no typing error
    CHECK(2 * m.device_bandwidth.per_second > m.peak.device_memory.per_second);
    CHECK(2 * m.host_to_device.per_second > m.peak.link.per_second);
  }
}

TEST_CASE("one device of a host has the host to itself; several hosts have more ranks") {
  for (auto const& [one, four] : {std::pair("rtx3090x1", "rtx3090x4"),
                                  std::pair("rtx4090x1", "rtx4090x4"),
                                  std::pair("a100x1", "a100x4")}) {
    hw::machine m = *hw::preset(four);
    CHECK(all_ranks(m) == 4);
    m.name = one;
    m.devices = 1;
    CHECK(*hw::preset(one) == m);
    CHECK(all_ranks(m) == 1);
  }
  hw::machine const m = *hw::preset("a100x4x4nodes");
  CHECK(all_ranks(m) == 16);
  CHECK(hw::local_ranks(m, 16) == 4);
  CHECK(m.collective < hw::a100x4().collective);
  // 32.6 GB/s to each of four H200 at once, 55.5 to one.
  CHECK(hw::copies_of_rank(*hw::preset("h200x4"), 4).host_to_device == bandwidth{32'600'000'000});
}

TEST_CASE("ranks that share a host copy as fast as all of them do at once") {
  hw::machine m{.devices = 4, .concurrent = {.both_ways = {{1}, {1}}, .all_ranks = {{60}, {250}}}};
  CHECK(hw::copies_of_rank(m, 1) == hw::copy_rates{});
  for (std::uint64_t const world : {2U, 4U, 8U}) {
    CHECK(hw::copies_of_rank(m, world) == hw::copy_rates{{60}, {250}});
  }
  CHECK(hw::beside({100}, {60}) == bandwidth{60});
  CHECK(hw::beside({200}, {250}) == bandwidth{200});  // never above the rate alone
  CHECK(hw::beside({100}, {}) == bandwidth{100});     // not known
  m.devices = 1;
  CHECK(hw::copies_of_rank(m, 4) == hw::copy_rates{});
  CHECK(hw::local_ranks({.devices = 4}, 8) == 4);
  CHECK(hw::local_ranks({.devices = 4}, 3) == 3);
  CHECK(hw::local_ranks({.devices = 0}, 0) == 1);
  CHECK(hw::collective_latency({.copy_latency = {5}}) == picoseconds{5});
  CHECK(hw::collective_latency({.copy_latency = {5}, .collective_latency = {7}}) == picoseconds{7});
}

TEST_CASE("an unknown machine is an invalid argument") {
  CHECK(hw::preset("h200").failure().code == errc::invalid_argument);
  CHECK(hw::preset("").failure().code == errc::invalid_argument);
}

}  // namespace

}  // namespace presets_test
