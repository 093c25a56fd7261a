// SPDX-License-Identifier: Apache-2.0
// Measures this machine as `plan --machine` reads it: host memory that plays the device, and the
// products of the examples' blocks.

#include "protrain/profile/probe.hpp"

#include "examples/cli/flags.hpp"
#include "examples/cli/program.hpp"
#include "examples/cli/runfiles.hpp"
#include "examples/transformer/gemm.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/io/machine.hpp"
#include "protrain/report/format.hpp"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using protrain::hw::machine;
using protrain::profile::compute_work;
using protrain::profile::probe_options;

constexpr std::uint64_t least_copy = 4096;

constexpr transformer::length n = 256;

/// A product of the examples, n x n x n, with memory of its own.
template <class T>
class square_product {
 public:
  void operator()() {
    transformer::gemm<transformer::operand::as_is, transformer::operand::as_is>(
        n,
        n,
        n,
        transformer::matrix<T const>{a_.data(), n},
        transformer::matrix<T const>{b_.data(), n},
        transformer::matrix<T>{c_.data(), n},
        static_cast<T const*>(nullptr),
        workspace_.data());
  }

 private:
  static std::vector<T> zeros() { return std::vector<T>(n * n, T{}); }

  std::vector<T> a_ = zeros();
  std::vector<T> b_ = zeros();
  std::vector<T> c_ = zeros();
  std::vector<float> workspace_ =
      std::vector<float>(std::size_t{transformer::gemm_workspace<T, T, T>(n, n, n)});
};

template <class T>
compute_work product() {
  auto const work = std::make_shared<square_product<T>>();
  return {2 * n * n * n, [work](protrain::device::queue_ref) { (*work)(); }};
}

/// Bytes of memory of this computer.
protrain::bytes memory() {
  long const pages = ::sysconf(_SC_PHYS_PAGES);
  long const size = ::sysconf(_SC_PAGESIZE);
  return {pages > 0 && size > 0
              ? static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(size)
              : 0};
}

void print_figure(std::string_view what, std::uint64_t amount, protrain::picoseconds time) {
  using namespace protrain::report;
  std::printf("%s %s in %s\n",
              left(what, 32).c_str(),
              right(human_count(amount), 8).c_str(),
              right(human_time(time), 10).c_str());
  std::fflush(stdout);
}

void print_machine(machine const& m) {
  auto const line = [](char const* what, std::uint64_t per_second, char const* unit) {
    std::printf("%s %s\n",
                protrain::report::left(what, 32).c_str(),
                protrain::report::right(protrain::report::human_count(per_second) + unit + "/s", 14)
                    .c_str());
  };
  std::printf("\n%s\n", std::string(m.name.view()).c_str());
  line("host to device", m.host_to_device.per_second, "B");
  line("device to host", m.device_to_host.per_second, "B");
  line("  beside each other, up", m.concurrent.both_ways.host_to_device.per_second, "B");
  line("  beside each other, down", m.concurrent.both_ways.device_to_host.per_second, "B");
  if (m.devices > 1) {
    line("  on all ranks at once, up", m.concurrent.all_ranks.host_to_device.per_second, "B");
    line("  on all ranks at once, down", m.concurrent.all_ranks.device_to_host.per_second, "B");
    line("collectives", m.collective.per_second, "B");
  }
  line("device memory", m.device_bandwidth.per_second, "B");
  line("CPU optimizer", m.host_bandwidth.per_second, "B");
  line("fp32 products", m.compute_fp32.per_second, "FLOP");
  line("bf16 products", m.compute_half.per_second, "FLOP");
}

/// One thread for each rank; rethrows the failure that came first.
template <class MakeDevice>
machine probe_ranks(std::uint32_t ranks, MakeDevice const& make, probe_options const& options) {
  if (ranks == 1) {
    auto const device = make();
    protrain::comm::self alone;
    return protrain::profile::probe(*device, alone, options);
  }
  protrain::comm::thread_group group(ranks, std::chrono::minutes(10));
  std::vector<machine> found(ranks);
  std::vector<std::exception_ptr> failures(ranks);
  std::vector<std::thread> threads;
  threads.reserve(ranks);
  for (std::uint32_t r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      protrain::comm::threads comm(group, r);
      try {
        auto const device = make();
        found[r] = protrain::profile::probe(*device, comm, options);
      } catch (std::exception const& e) {
        failures[r] = std::current_exception();
        comm.abort(e.what());
      }
    });
  }
  for (std::thread& t : threads) {
    t.join();
  }
  for (std::exception_ptr const& f : failures) {
    if (f) {
      std::rethrow_exception(f);  // what the other ranks say names the one that failed
    }
  }
  return found.front();
}

machine probe_on(std::string const& device,
                 std::uint32_t ranks,
                 std::uint64_t rate,
                 probe_options const& options) {
  if (device == "serial") {
    return probe_ranks(
        ranks, [] { return std::make_unique<protrain::device::serial_device>(); }, options);
  }
  protrain::device::host_link const link{.rate = {rate}};
  return probe_ranks(
      ranks,
      [&] {
        return std::make_unique<protrain::device::host_device>(
            protrain::device::host_options{.h2d = link, .d2h = link});
      },
      options);
}

int run(int count, char** words) {
  cli::enter_working_folder();
  cli::flags f(
      "Usage: probe [FLAGS]\n\nMeasures this machine: copies, collectives, the CPU "
      "optimizer and products, alone and together.");
  f.add("device", "host|serial", "host", "a thread per queue, or one thread for all")
      .add("world", "W", "1", "ranks, which probe at once")
      .add("rate", "SIZE", "none", "slow copies down to so many bytes a second each way")
      .add("copy", "SIZE", "16MiB", "bytes of one copy")
      .add("name", "NAME", "probed", "what the machine is called")
      .add("out", "FILE", "", "write the machine as JSON, for plan --machine FILE")
      .add_switch("json", "print the JSON, and nothing else")
      .add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  std::string const device = f.choice("device", "host", {"host", "serial"});
  auto const ranks = static_cast<std::uint32_t>(f.integer("world", 1, 1, 64));
  std::uint64_t const slowed = f.size("rate", 0);
  bool const json = f.given("json");
  probe_options options;
  options.name = protrain::text(f.text("name").value_or("probed"));
  options.source = protrain::text("measured by probe on device " + device);
  options.copy = f.size("copy", options.copy);
  if (options.copy < least_copy || options.copy > (std::uint64_t{1} << 40U)) {
    f.refuse("copy", "must be from 4KiB to 1TiB");
  }
  options.fp32 = product<float>();
  options.half = product<protrain::bfloat16>();
  options.device_memory = memory();
  options.host_memory = memory();
  if (!json) {
    options.see = print_figure;
  }
  machine const m = probe_on(device, ranks, slowed, options);
  if (json) {
    std::printf("%s\n", protrain::io::to_json(m).dump(2).c_str());
  } else {
    print_machine(m);
  }
  if (auto const file = f.text("out"); file && f.given("out")) {
    protrain::io::write_machine(*file, m);
  }
  return 0;
}

}  // namespace

int main(int count, char** words) { return cli::run_program("probe", run, count, words); }
