// SPDX-License-Identifier: Apache-2.0
// After two steps an engine on the host device takes nothing from the heap: every allocation of
// this program is counted.

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/optim/pieces.hpp"
#include "protrain/runtime/engine.hpp"
#include "test/heap/heap.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/unit/runtime/support.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace engine_allocations_test {

namespace {

using namespace protrain;
using test::heap::allocations;

TEST_CASE("from the third step on, steps allocate nothing") {
  model::job job = test::job_of(dtype::bf16, 2, 0.05F);
  job.micro_batch = 2;
  job.sequence = 3;
  job.dropout = 0.1F;
  test::subject const s =
      test::make_subject(test::make_mlp<bfloat16>({.layers = 4}), job, test::uniform_values(0.4F));
  std::vector<test::step_data> data;
  for (std::uint64_t step = 0; step < 50; ++step) {
    data.emplace_back(s, step);
  }
  for (test::placement const& p : test::placements()) {
    device::host_device d;
    comm::self alone;
    runtime::engine engine(d, alone, s.table, test::parts_of(s, p));
    engine.initialise(s.load);
    (void)engine.step(data[0].get(), {}).get();
    (void)engine.step(data[1].get(), {}).get();
    std::uint64_t const before = allocations;
    CHECK(before > 0);
    for (std::size_t step = 2; step < data.size(); ++step) {
      (void)engine.step(data[step].get(), {}).get();
    }
    std::uint64_t const after = allocations;
    CHECK(after == before);
  }
}

TEST_CASE("nor do updates on several threads, and a crew at work") {
  test::subject const s = test::constant_model(test::job_of(dtype::bf16, 1, 0.5F),
                                               {{"a", {4 * optim::fewest_per_thread}}},
                                               {{"b", {300}}},
                                               {{"c", {1}}});
  device::host_device d;
  comm::self alone;
  runtime::engine engine(
      d, alone, s.table, test::parts_of(s, {.persistent = {0}}), optim::adamw{}, {.threads = 3});
  engine.initialise(s.load);
  device::workers crew(4);
  test::constant_batch const data({0.5F});
  std::uint64_t before = 0;
  for (int step = 0; step < 6; ++step) {
    before = step == 2 ? allocations.load() : before;
    (void)engine.step(data, {}).get();
    std::atomic<int> sum{0};
    crew.run(4, [&](std::uint32_t part) { sum += static_cast<int>(part); });
    REQUIRE(sum == 6);
  }
  CHECK(allocations == before);
}

}  // namespace

}  // namespace engine_allocations_test
