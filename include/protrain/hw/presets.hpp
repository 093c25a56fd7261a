// SPDX-License-Identifier: Apache-2.0
#pragma once
// Machines that can be named on a command line.

#include "protrain/core/math.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"

#include <array>
#include <cstdint>
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

/// Data sheets' share that a program gets: estimates, the same for every preset that isn't measured.
/// What several ranks get at once is known of the H200 host only; elsewhere it is taken for the rate
/// alone.
struct achievable {
  static constexpr std::uint64_t percent_of_compute = 70;
  static constexpr std::uint64_t percent_of_memory = 80;  ///< and of links
};

namespace detail {

template <class Unit>
constexpr rate<Unit> percent(rate<Unit> of, std::uint64_t share) {
  return {mul_div(of.per_second, share, 100)};
}

/// The rates of `m` from its peaks: compute, memory of the device, copies.
constexpr machine with_estimates(machine m) {
  m.host_to_device = m.device_to_host = percent(m.peak.link, achievable::percent_of_memory);
  m.device_bandwidth = percent(m.peak.device_memory, achievable::percent_of_memory);
  m.compute_fp32 = percent(m.peak.fp32, achievable::percent_of_compute);
  m.compute_half = percent(m.peak.half, achievable::percent_of_compute);
  return m;
}

/// The same host with one of its devices.
constexpr machine with_one_device(machine m, std::string_view name) {
  m.name = name;
  m.devices = 1;
  m.concurrent.all_ranks = {};
  return m;
}

}  // namespace detail

/// One of four RTX 3090 without NVLink in a host of two Xeon Silver 4214R, as in the ProTrain paper:
/// 24 cores, 384 GB, PCIe 3.0 at 15.8 GB/s. Collectives pass through the host's memory, at half of a
/// copy. The host's memory has 230 GB/s at its peak, 60 % of which is what the optimizer gets.
constexpr machine rtx3090x4() {
  return detail::with_estimates(
      {.name = "rtx3090x4",
       .source = "datasheet peaks x 0.7 (compute) and 0.8 (memory, links); host as in the paper",
       .devices = 4,
       .device_memory = 24_GiB,
       .host_memory = 384_GB,
       .copy_latency = 10_us,
       .host_bandwidth = {138'000'000'000},
       .host_threads = 24,
       .collective = {6'300'000'000},
       .peak = {.fp32 = {35'600'000'000'000},
                .half = {71'000'000'000'000},
                .device_memory = {936'000'000'000},
                .link = {15'800'000'000},
                .source = "NVIDIA GA102 whitepaper, dense"}});
}

/// One of four RTX 4090, PCIe 4.0, no NVLink and no copies between devices. The host is an
/// assumption: 64 cores, 512 GB, eight channels of DDR4-3200, of whose 205 GB/s the optimizer gets 60 %.
constexpr machine rtx4090x4() {
  return detail::with_estimates(
      {.name = "rtx4090x4",
       .source = "datasheet peaks x 0.7 (compute) and 0.8 (memory, links); host assumed",
       .devices = 4,
       .device_memory = 24_GiB,
       .host_memory = 512_GB,
       .copy_latency = 10_us,
       .host_bandwidth = {123'000'000'000},
       .host_threads = 64,
       .collective = {12'600'000'000},
       .peak = {.fp32 = {82'600'000'000'000},
                .half = {165'200'000'000'000},
                .device_memory = {1'008'000'000'000},
                .link = {31'500'000'000},
                .source = "NVIDIA Ada whitepaper, dense"}});
}

/// One of four A100-80GB with PCIe 4.0 and NVLink, as in the ProTrain paper: 112 cores, 1 TB.
constexpr machine a100x4() {
  return detail::with_estimates(
      {.name = "a100x4",
       .source = "datasheet peaks x 0.7 (compute) and 0.8 (memory, links); host as in the paper",
       .devices = 4,
       .device_memory = 80_GB,
       .host_memory = 1000_GB,
       .copy_latency = 10_us,
       .host_bandwidth = {200'000'000'000},
       .host_threads = 112,
       .collective = {240'000'000'000},
       .peak = {.fp32 = {19'500'000'000'000},
                .half = {312'000'000'000'000},
                .device_memory = {2'039'000'000'000},
                .link = {31'500'000'000},
                .source = "NVIDIA A100 datasheet, dense"}});
}

/// Four such hosts on 100 Gb/s Ethernet: a ring passes each host's link once, at 80 % of it.
constexpr machine a100x4x4nodes() {
  machine m = a100x4();
  m.name = "a100x4x4nodes";
  m.hosts = 4;
  m.collective = {10'000'000'000};
  m.collective_latency = 50_us;
  return m;
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
                         .update_beside_copies = {69'000'000'000}},
          .peak = {.fp32 = {67'000'000'000'000},
                   .half = {989'000'000'000'000},
                   .device_memory = {4'800'000'000'000},
                   .link = {63'000'000'000},
                   .source = "NVIDIA H200 datasheet, dense"}};
}

/// One of four H200 with 64 host cores and NVLink: copies of all four at once 32.6 GB/s each,
/// all-gather 421 and reduce-scatter 412 GB/s; the CPU optimizer of four ranks at once 265 GB/s in
/// all, from the time that one of 28 B a parameter took. The rest as h200x1.
constexpr machine h200x4() {
  machine m = h200x1();
  m.name = "h200x4";
  m.source = "measured on one host of four H200 (copies at once, collectives) and as h200x1";
  m.devices = 4;
  m.host_memory = 512_GiB;
  m.host_bandwidth = {265'000'000'000};
  m.host_threads = 64;
  m.concurrent.all_ranks = {{32'600'000'000}, {32'600'000'000}};
  m.concurrent.update_beside_copies = {148'000'000'000};  // 56 % again
  return m;
}

/// One H100 SXM: the H200's chip beside slower memory, in the same host. Of its memory's 3.35 TB/s as
/// large a share as the H200 gets of its own, 88 %.
constexpr machine h100x1() {
  machine m = h200x1();
  m.name = "h100x1";
  m.source = "as h200x1 (same chip and link), memory at the same share of its peak";
  m.device_memory = 80_GB;
  m.device_bandwidth = {2'953'000'000'000};
  m.peak.device_memory = {3'350'000'000'000};
  m.peak.source = "NVIDIA H100 SXM datasheet, dense";
  return m;
}

/// One Grace Hopper: an H100 with 96 GB of HBM3 and a CPU of 72 cores, whose 480 GB of memory (512 GB/s
/// at its peak, 60 % for the optimizer) it reaches at 450 GB/s each way.
constexpr machine gh200x1() {
  return detail::with_estimates(
      {.name = "gh200x1",
       .source = "datasheet peaks x 0.7 (compute) and 0.8 (memory, links)",
       .devices = 1,
       .device_memory = 96_GB,
       .host_memory = 480_GB,
       .copy_latency = 10_us,
       .host_bandwidth = {307'000'000'000},
       .host_threads = 72,
       .collective = {360'000'000'000},
       .peak = {.fp32 = {67'000'000'000'000},
                .half = {989'000'000'000'000},
                .device_memory = {4'000'000'000'000},
                .link = {450'000'000'000},
                .source = "NVIDIA GH200 datasheet, dense"}});
}

inline constexpr std::array<std::string_view, 12> preset_names{"host-demo",
                                                               "rtx3090x1",
                                                               "rtx3090x4",
                                                               "rtx4090x1",
                                                               "rtx4090x4",
                                                               "a100x1",
                                                               "a100x4",
                                                               "a100x4x4nodes",
                                                               "h100x1",
                                                               "h200x1",
                                                               "h200x4",
                                                               "gh200x1"};

/// The preset of that name, or `errc::invalid_argument`.
constexpr result<machine> preset(std::string_view name) {
  for (machine (*const make)() :
       {host_demo, rtx3090x4, rtx4090x4, a100x4, a100x4x4nodes, h100x1, h200x1, h200x4, gh200x1}) {
    if (machine m = make(); m.name.view() == name) {
      return m;
    }
  }
  if (name == "rtx3090x1") {
    return detail::with_one_device(rtx3090x4(), name);
  }
  if (name == "rtx4090x1") {
    return detail::with_one_device(rtx4090x4(), name);
  }
  if (name == "a100x1") {
    return detail::with_one_device(a100x4(), name);
  }
  return error{errc::invalid_argument, "no machine of that name", 0};
}

}  // namespace protrain::inline v0::hw
