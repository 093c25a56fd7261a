// SPDX-License-Identifier: Apache-2.0
// A pass over a block costs pointer bumps: not one heap allocation, from the first step on.

#include "protrain/block/standalone.hpp"
#include "test/support/mlp.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int> allocations{0};

void* allocate(std::size_t bytes, std::size_t alignment) {
  ++allocations;
  void* const p = std::aligned_alloc(alignment, protrain::round_up(bytes + 1, alignment));
  if (p == nullptr) {
    throw std::bad_alloc();
  }
  return p;
}

}  // namespace

void* operator new(std::size_t n) { return allocate(n, alignof(std::max_align_t)); }
void* operator new(std::size_t n, std::align_val_t a) {
  return allocate(n, static_cast<std::size_t>(a));
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

TEST_CASE("forward, recompute, backward and evaluation allocate nothing") {
  auto const model = protrain::test::make_mlp<float>({});
  protrain::model::job const job{.micro_batch = 2, .sequence = 2, .dropout = 0.1F};
  auto const t = model.entries(job);
  protrain::standalone owner(t, job);
  int const before = allocations;
  owner.begin({});
  owner.forward();
  owner.forward(protrain::block::pass::recompute);
  owner.backward();
  owner.forward(protrain::block::pass::evaluate);
  int const after = allocations;
  CHECK(before > 0);
  CHECK(after == before);
}
