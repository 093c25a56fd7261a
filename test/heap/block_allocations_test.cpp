// SPDX-License-Identifier: Apache-2.0
// A pass over a block costs pointer bumps: not one heap allocation, from the first step on.

#include "protrain/block/standalone.hpp"
#include "test/heap/heap.hpp"
#include "test/support/mlp.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace {

TEST_CASE("forward, recompute, backward and evaluation allocate nothing") {
  auto const model = protrain::test::make_mlp<float>({});
  protrain::model::job const job{.micro_batch = 2, .sequence = 2, .dropout = 0.1F};
  auto const t = model.entries(job);
  protrain::standalone owner(t, job);
  std::uint64_t const before = protrain::test::heap::allocations;
  owner.begin({});
  owner.forward();
  owner.forward(protrain::block::pass::recompute);
  owner.backward();
  owner.forward(protrain::block::pass::evaluate);
  std::uint64_t const after = protrain::test::heap::allocations;
  CHECK(before > 0);
  CHECK(after == before);
}

}  // namespace
