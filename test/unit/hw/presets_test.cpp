// SPDX-License-Identifier: Apache-2.0
// Machines by name.

#include "protrain/hw/presets.hpp"

#include <doctest/doctest.h>

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

TEST_CASE("an unknown machine is an invalid argument") {
  CHECK(hw::preset("h200").failure().code == errc::invalid_argument);
  CHECK(hw::preset("").failure().code == errc::invalid_argument);
}

}  // namespace

}  // namespace presets_test
