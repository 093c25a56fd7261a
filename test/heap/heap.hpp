// SPDX-License-Identifier: Apache-2.0
// The heap of the programs in this folder: counts what is taken from it and refuses the n-th.
// Included by one translation unit of a program: it replaces the global operators.

#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace protrain::test::heap {

inline std::atomic<std::uint64_t> allocations{0};   // so far, the refused ones among them
inline std::atomic<std::uint64_t> left_to_fail{0};  // n: the n-th from now on fails; 0: none does
inline thread_local bool spared = false;            // this thread's neither count nor fail

inline bool refused() {
  if (spared) {
    return false;
  }
  ++allocations;
  std::uint64_t left = left_to_fail.load();
  while (left > 0 && !left_to_fail.compare_exchange_weak(left, left - 1)) {
  }
  return left == 1;
}

inline void* take(std::size_t bytes, std::size_t alignment = alignof(std::max_align_t)) {
  if (!refused()) {
    std::size_t const some = std::max<std::size_t>(bytes, 1);
    std::size_t const whole = (some + alignment - 1) / alignment * alignment;
    void* const at = alignment <= alignof(std::max_align_t) ? std::malloc(some)
                                                            : std::aligned_alloc(alignment, whole);
    if (at != nullptr) {
      return at;
    }
  }
  throw std::bad_alloc();
}

}  // namespace protrain::test::heap

void* operator new(std::size_t bytes) { return protrain::test::heap::take(bytes); }
void* operator new[](std::size_t bytes) { return protrain::test::heap::take(bytes); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return protrain::test::heap::take(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* at) noexcept { std::free(at); }
void operator delete[](void* at) noexcept { std::free(at); }
void operator delete(void* at, std::size_t) noexcept { std::free(at); }
void operator delete[](void* at, std::size_t) noexcept { std::free(at); }
void operator delete(void* at, std::align_val_t) noexcept { std::free(at); }
void operator delete(void* at, std::size_t, std::align_val_t) noexcept { std::free(at); }
