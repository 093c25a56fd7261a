// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machines that can be named on a command line.

#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"

#include <array>
#include <string_view>

namespace protrain::inline v0::hw {

/// The throttled host device of the examples. Constants chosen for teaching, never measured, so
/// that the same job gets the same plan everywhere.
constexpr machine host_demo() {
  return {.name = "host-demo",
          .source = "constants by definition",
          .devices = 1,
          .device_memory = 1_GiB,
          .host_memory = 8_GiB,
          .host_to_device = {2'000'000'000},
          .device_to_host = {2'000'000'000},
          .copy_latency = 10_us,
          .device_bandwidth = {10'000'000'000},
          .host_bandwidth = {10'000'000'000},
          .host_threads = 2,
          .compute_fp32 = {20'000'000'000},
          .compute_half = {20'000'000'000},
          .collective = {2'000'000'000}};
}

/// One of four A100-80GB with PCIe 4.0 and NVLink, as in the ProTrain paper. Peak dense rates are
/// NVIDIA's (bf16 312 TFLOP/s, TF32 off: fp32 19.5 TFLOP/s, HBM2e 2.04 TB/s); the achievable
/// shares (70 % of compute, 80 % of links and memory) are estimates.
constexpr machine a100x4() {
  return {.name = "a100x4",
          .source = "datasheet peaks x 0.7 (compute) and 0.8 (memory, links)",
          .devices = 4,
          .device_memory = 80_GB,
          .host_memory = 1000_GB,
          .host_to_device = {25'200'000'000},
          .device_to_host = {25'200'000'000},
          .copy_latency = 10_us,
          .device_bandwidth = {1'630'000'000'000},
          .host_bandwidth = {200'000'000'000},
          .host_threads = 112,
          .compute_fp32 = {13'600'000'000'000},
          .compute_half = {218'000'000'000'000},
          .collective = {240'000'000'000}};
}

/// One H200 with 16 host cores. Rates as measured on such a machine: pinned copies 55.5 and
/// 55.4 GB/s, 673 TFLOP/s sustained in bf16 GEMMs, 4232 GB/s device to device, AdamW on 16 bound
/// cores 123 GB/s. Together: copies both ways 50.9 GB/s each, and beside them and a GEMM 51.6; beside
/// AdamW 39 up and 54 down, while AdamW beside both keeps 56 % of its rate. The fp32 rate is the
/// datasheet's 67 TFLOP/s x 0.7.
constexpr machine h200x1() {
  return {.name = "h200x1",
          .source = "measured on one H200 host (copies, bf16 GEMM, memories); fp32 estimated",
          .devices = 1,
          .device_memory = {150'110'011'392},
          .host_memory = 128_GiB,
          .host_to_device = {55'500'000'000},
          .device_to_host = {55'400'000'000},
          .copy_latency = 10_us,
          .device_bandwidth = {4'232'000'000'000},
          .host_bandwidth = {123'000'000'000},
          .host_threads = 16,
          .compute_fp32 = {46'900'000'000'000},
          .compute_half = {673'000'000'000'000},
          .collective = {412'000'000'000},
          .concurrent = {.both_ways = {{50'900'000'000}, {50'900'000'000}},
                         .beside_compute = {{51'600'000'000}, {51'600'000'000}},
                         .beside_update = {{39'000'000'000}, {54'000'000'000}},
                         .update_beside_copies = {69'000'000'000}}};
}

inline constexpr std::array<std::string_view, 3> preset_names{"host-demo", "a100x4", "h200x1"};

/// The preset of that name, or `errc::invalid_argument`.
constexpr result<machine> preset(std::string_view name) {
  if (name == "host-demo") {
    return host_demo();
  }
  if (name == "a100x4") {
    return a100x4();
  }
  if (name == "h200x1") {
    return h200x1();
  }
  return error{errc::invalid_argument, "no machine of that name", 0};
}

}  // namespace protrain::inline v0::hw
