// SPDX-License-Identifier: Apache-2.0
// CPU optimizer starved of threads: eight ranks on two processors, as a cgroup says, from the file
// to the plan.

#include "protrain/core/ids.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/processors.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/runtime/cpu_threads.hpp"
#include "protrain/trace/trace.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

namespace starved_test {

namespace {

using namespace protrain;
using namespace protrain::literals;

/// Eight blocks of 8 Mi elements, on eight ranks.
trace::trace job() {
  trace::trace t{.job = {.micro_batch = 1,
                         .sequence = 8,
                         .world = 8,
                         .type = dtype::bf16,
                         .state = model::state_format::split_master}};
  trace::block_shape body{.name = "block",
                          .forward = 3000_us,
                          .backward = 6000_us,
                          .input = 1_MiB,
                          .output = 1_MiB,
                          .saved = 24_MiB,
                          .scratch_forward = 1_MiB,
                          .scratch_backward = 2_MiB};
  trace::block_shape first = body;
  first.input = {};
  trace::block_shape last = body;
  last.output = {};
  t.shapes = {first, body, last};
  for (std::uint32_t b = 0; b < 8; ++b) {
    t.blocks.push_back(shape_id{b == 0 ? 0U : (b == 7 ? 2U : 1U)});
    t.parameters.push_back(
        {.name = "w", .shape = {8192, 1024}, .type = dtype::bf16, .uses = {block_id{b}}});
  }
  t.batch = 4_KiB;
  return t;
}

/// Eight devices and sixteen threads; host memory at 160 GB/s for all of them.
hw::machine machine() {
  return {.name = "eight",
          .source = "made up",
          .devices = 8,
          .device_memory = 1_GiB,
          .host_memory = 64_GiB,
          .host_to_device = {20'000'000'000},
          .device_to_host = {20'000'000'000},
          .copy_latency = 10_us,
          .device_bandwidth = {1'000'000'000'000},
          .host_bandwidth = {160'000'000'000},
          .host_threads = 16,
          .compute_fp32 = {10'000'000'000'000},
          .compute_half = {100'000'000'000'000},
          .collective = {200'000'000'000}};
}

/// What the cgroup of a process says in whose `cpu.max` this line is.
std::uint32_t quota_of(std::string const& line) {
  std::string name = (std::filesystem::temp_directory_path() / "protrain_starved_XXXXXX").string();
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  std::filesystem::create_directories(name + "/proc/self");
  std::filesystem::create_directories(name + "/sys/fs/cgroup/job");
  std::ofstream(name + "/proc/self/cgroup") << "0::/job\n";
  std::ofstream(name + "/sys/fs/cgroup/job/cpu.max") << line << "\n";
  std::uint32_t const quota = device::cgroup_quota(name);
  std::error_code none;
  std::filesystem::remove_all(name, none);
  return quota;
}

}  // namespace

TEST_CASE("CPU optimizer starved of threads: the plan hears of it and moves updates to the GPU") {
  device::processors const starved{.affinity = 16, .quota = quota_of("200000 100000")};
  REQUIRE(starved.quota == 2);
  CHECK(device::thread_share(starved, 8) == 1);
  hw::machine const fed = runtime::limited_to(machine(), {.affinity = 16});
  hw::machine const poor = runtime::limited_to(machine(), starved);
  CHECK(fed.usable_threads == 16);
  CHECK(poor.usable_threads == 2);
  CHECK(hw::threads_of_rank(poor, 8) == device::thread_share(starved, 8));
  CHECK(runtime::limited_to(machine(), {.affinity = 64}).usable_threads == 16);

  // "Where memory allows": room for one or two chunks beside what swapping and recomputing leave.
  trace::trace const t = job();
  plan::budget const b{.gpu = 200_MiB, .host = 64_GiB};
  auto const rich_plan = plan::search(t, fed, b);
  auto const poor_plan = plan::search(t, poor, b);
  REQUIRE(rich_plan.has_value());
  REQUIRE(poor_plan.has_value());

  // The plan for many threads takes longer with two; the one made for two is faster, because more
  // of its updates are on the GPU.
  auto const same =
      plan::make(t, poor, b, plan::policies<>{}, *plan::parse(rich_plan->string().view(), t.job));
  REQUIRE(same.has_value());
  CHECK(same->predicted.iteration > rich_plan->predicted.iteration);
  CHECK(poor_plan->predicted.iteration < same->predicted.iteration);
  auto const on_cpu = [](plan::plan const& p) { return p.at.moving - p.at.streamed; };
  CHECK(on_cpu(*poor_plan) < on_cpu(*rich_plan));
}

}  // namespace starved_test
