// SPDX-License-Identifier: Apache-2.0
// Probing machines whose truth is known: exactly on a clock that stands still, within a wide band on
// links that sleep, alone and together, by one rank and by three at once.

#include "protrain/profile/probe.hpp"

#include "protrain/comm/error.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/link/bandwidth.hpp"
#include "test/unit/profile/devices.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace probe_test {

namespace {

using namespace protrain;
using profile::probe;
using profile::probe_options;

/// A few pieces of a few KiB.
probe_options small_probe() {
  probe_options out;
  out.copy = 65'536;
  out.update = 4096;
  out.repetitions = 5;
  out.collectives = {1024, 65'536};
  return out;
}

double share(bandwidth of, bandwidth whole) {
  return static_cast<double>(of.per_second) / static_cast<double>(whole.per_second);
}

struct answer {
  hw::machine machine{};
  std::string error{};
  std::uint64_t live = 0;
};

/// Probes on a thread per rank; `make_device(rank)` answers a unique_ptr.
template <class MakeDevice>
std::vector<answer> probe_ranks(std::uint32_t ranks,
                                MakeDevice const& make_device,
                                probe_options const& options) {
  comm::thread_group group(ranks, std::chrono::seconds(30));
  std::vector<answer> out(ranks);
  std::vector<std::thread> threads;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      comm::threads comm(group, r);
      auto const device = make_device(r);
      try {
        out[r].machine = probe(*device, comm, options);
      } catch (std::exception const& e) {
        out[r].error = e.what();
      }
      out[r].live = device->usage_of(space::device).live + device->usage_of(space::host).live;
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  return out;
}

}  // namespace

TEST_CASE("on a clock that only copies move, every rate is exact") {
  test::clocked_device device(
      {.up_byte = {500}, .down_byte = {1000}, .inside_byte = {20}, .latency = {3'000'000}});
  probe_options options = small_probe();
  options.update = 64;  // takes no time here, so thousands are tried
  options.name = "clockwork";
  options.source = "a test";
  options.fp32 = {7'000, [&](device::queue_ref) { device.advance({1'000'000}); }};
  options.half = {9'000, [&](device::queue_ref) { device.advance({1'000'000}); }};
  options.device_memory = 3_MiB;
  options.host_memory = 5_MiB;
  options.threads = 2;
  std::vector<std::string> seen;
  options.see = [&](std::string_view what, std::uint64_t amount, picoseconds time) {
    seen.emplace_back(what);
    if (what == "copy up") {
      CHECK(amount == 65'536);
      CHECK(time == picoseconds{65'536 * 500 + 3'000'000});
    }
  };
  comm::self alone;
  hw::machine const m = probe(device, alone, options);
  CHECK(m.name == "clockwork");
  CHECK(m.source == "a test");
  CHECK(m.devices == 1);
  CHECK(m.device_memory == 3_MiB);
  CHECK(m.host_memory == 5_MiB);
  CHECK(m.host_threads == 2);
  CHECK(m.host_to_device.per_second == 2'000'000'000);
  CHECK(m.device_to_host.per_second == 1'000'000'000);
  CHECK(m.copy_latency == 3_us);
  CHECK(m.device_bandwidth.per_second == 100'000'000'000);  // reads and writes
  CHECK(m.compute_fp32.per_second == 7'000'000'000);
  CHECK(m.compute_half.per_second == 9'000'000'000);
  CHECK(m.host_bandwidth.per_second > 0);
  CHECK(m.collective == m.device_bandwidth);
  CHECK(m.collective_latency == picoseconds{});
  // One thread plays all queues: nothing disturbs anything.
  for (hw::copy_rates const& beside :
       {m.concurrent.both_ways, m.concurrent.beside_compute, m.concurrent.beside_update}) {
    CHECK(beside == hw::copy_rates{m.host_to_device, m.device_to_host});
  }
  CHECK(m.concurrent.all_ranks == hw::copy_rates{});  // there is one
  CHECK(seen.size() == profile::detail::figure_count);
  CHECK(device.usage_of(space::device).live == 0);
  CHECK(device.usage_of(space::host).live == 0);
}

TEST_CASE("without half, fp32 stands for both; without either, a plain loop does") {
  test::clocked_device device;
  probe_options options = small_probe();
  options.update = 64;
  options.fp32 = {7'000, [&](device::queue_ref) { device.advance({1'000'000}); }};
  comm::self alone;
  hw::machine const m = probe(device, alone, options);
  CHECK(m.compute_half == m.compute_fp32);
  device::host_device host;
  hw::machine const plain = probe(host, alone, small_probe());
  CHECK(plain.compute_fp32.per_second > 1'000'000);
  CHECK(plain.host_threads > 0);
}

TEST_CASE("a throttled link is found, and its directions don't disturb each other") {
  // So slow that what is measured is sleep, on a busy machine too.
  bandwidth const up{10'000'000};
  bandwidth const down{5'000'000};
  device::host_device device({.h2d = {up, 2_ms}, .d2h = {down, 2_ms}});
  comm::self alone;
  hw::machine const m = probe(device, alone, small_probe());
  for (hw::copy_rates const& of :
       {hw::copy_rates{m.host_to_device, m.device_to_host}, m.concurrent.both_ways}) {
    CHECK(share(of.host_to_device, up) > 0.25);
    CHECK(share(of.device_to_host, down) > 0.25);
  }
  for (hw::copy_rates const& of : {hw::copy_rates{m.host_to_device, m.device_to_host},
                                   m.concurrent.both_ways,
                                   m.concurrent.beside_compute,
                                   m.concurrent.beside_update}) {
    CHECK(share(of.host_to_device, up) < 1.5);
    CHECK(share(of.device_to_host, down) < 1.5);
  }
  CHECK(m.copy_latency > 1_ms);
  CHECK(m.device_bandwidth > m.host_to_device);
}

TEST_CASE("copies both ways over one link get half of it each") {
  std::atomic<std::uint32_t> on_the_way{0};
  bandwidth const rate{10'000'000};
  test::shared_link_device device(on_the_way, rate);
  comm::self alone;
  probe_options options = small_probe();
  options.repetitions = 9;
  hw::machine const m = probe(device, alone, options);
  CHECK(share(m.host_to_device, rate) > 0.25);
  for (double const beside : {share(m.concurrent.both_ways.host_to_device, m.host_to_device),
                              share(m.concurrent.both_ways.device_to_host, m.device_to_host)}) {
    CHECK(beside > 0.2);
    CHECK(beside < 0.8);
  }
}

TEST_CASE(
    "bandwidth measured alone, used together: three ranks copy at once and find one machine") {
  std::atomic<std::uint32_t> on_the_way{0};
  bandwidth const rate{30'000'000};
  auto const all = probe_ranks(
      3,
      [&](std::uint32_t) { return std::make_unique<test::shared_link_device>(on_the_way, rate); },
      small_probe());
  for (answer const& a : all) {
    CHECK(a.error.empty());
    CHECK(a.machine == all[0].machine);
    CHECK(a.live == 0);
  }
  hw::machine const& m = all[0].machine;
  CHECK(m.devices == 3);
  CHECK(m.host_threads % 3 == 0);
  CHECK(share(m.host_to_device, rate) > 0.25);  // alone, while the others wait
  CHECK(share(m.concurrent.all_ranks.host_to_device, m.host_to_device) < 0.7);
  CHECK(share(m.concurrent.all_ranks.device_to_host, m.device_to_host) < 0.7);
  CHECK(m.collective.per_second > 0);
  // What a plan for three ranks is made with; one for one rank has the link for itself.
  CHECK(cost::rates_of(m, link::fixed{}, 3).host_to_device ==
        m.concurrent.all_ranks.host_to_device);
  CHECK(cost::rates_of(m, link::fixed{}, 3).device_to_host ==
        m.concurrent.all_ranks.device_to_host);
  CHECK(cost::rates_of(m, link::fixed{}, 1).host_to_device == m.host_to_device);
}

TEST_CASE("a rank that fails takes all ranks with it") {
  auto const all = probe_ranks(
      3,
      [](std::uint32_t rank) {
        std::uint64_t const room = rank == 1 ? 4096 : 0;
        return std::make_unique<device::host_device>(device::host_options{.limit = {room, 0}});
      },
      small_probe());
  for (std::size_t r = 0; r < 3; ++r) {
    CAPTURE(r);
    CHECK(all[r].error.find("device memory: asked for") != std::string::npos);
    CHECK((all[r].error.find("rank 1 aborted: probe: ") != std::string::npos) == (r != 1));
    CHECK(all[r].live == 0);
  }
}

TEST_CASE("whichever call of the device fails, nothing is left") {
  test::clocked_device device({.tick = 1_us});  // a piece of anything takes a tick
  comm::self alone;
  probe_options options = small_probe();
  options.copy = 4096;
  options.update = 100;
  options.repetitions = 1;
  options.fp32 = {1, [](device::queue_ref) {}};
  std::uint64_t n = 0;
  for (bool done = false; !done;) {
    device.fail_after(++n);
    try {
      static_cast<void>(probe(device, alone, options));
      done = true;
    } catch (device::device_error const& e) {
      CHECK(std::string(e.what()).find("injected fault") != std::string::npos);
    }
    device.fail_after(0);
    CHECK(device.usage_of(space::device).live == 0);
    CHECK(device.usage_of(space::host).live == 0);
  }
  CHECK(n > 60);
}

TEST_CASE("the typical piece among those that ran beside all others") {
  using profile::detail::intervals;
  using profile::detail::typical_beside;
  // Seconds; pieces 2 to 4 of the first lane lie within the second, piece 2 and 3 within the third.
  std::vector<intervals> const lanes{
      {{0, 1}, {1, 2}, {2, 5}, {5, 9}, {9, 19}}, {{1.5, 4}, {4, 10}}, {{1, 9}}};
  CHECK(typical_beside(std::span(lanes).first(2), 0) == picoseconds{3'500'000'000'000});
  CHECK(typical_beside(lanes, 0) == picoseconds{3'500'000'000'000});
  CHECK(typical_beside(lanes, 2) == picoseconds{8'000'000'000'000});  // none: all of them
  std::vector<intervals> const apart{{{0, 1}, {1, 3}, {3, 4}}, {{5, 6}}};
  CHECK(typical_beside(apart, 0) == picoseconds{1'333'333'333'333});
}

TEST_CASE("rates and latency from times") {
  using profile::detail::line_through;
  using profile::detail::rate_of;
  CHECK(rate_of(500, 1_us) == 500'000'000);
  CHECK(rate_of(500, 3_us, 1_us) == 250'000'000);
  CHECK(rate_of(500, 1_us, 1_us) == 500'000'000);  // all of it is latency: not to be divided by
  CHECK(rate_of(0, 1_us) == 1);
  CHECK(rate_of(1ULL << 40U, {}) == std::uint64_t{1} << 60U);
  auto const line = line_through(1000, 15_us, 3000, 25_us);
  CHECK(line.rate.per_second == 200'000'000);
  CHECK(line.latency == 10_us);
  auto const flat = line_through(1000, 15_us, 3000, 15_us);
  CHECK(flat.rate.per_second == 200'000'000);
  CHECK(flat.latency == picoseconds{});
  CHECK(line_through(1000, 1_us, 1000, 1_us).rate.per_second == 1'000'000'000);
  CHECK(line_through(1000, 1_us, 3000, 25_us).latency == picoseconds{});  // never below 0
}

}  // namespace probe_test
