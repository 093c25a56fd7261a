// SPDX-License-Identifier: Apache-2.0
// Constant evaluation with default limits: compile, verify and the peak of a program. g++ affords 16
// blocks; clang, which stops after a million steps, 8.

#include "protrain/schedule/compile.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/verify.hpp"
#include "test/support/small_job.hpp"

#include <cstddef>
#include <cstdint>

namespace {

using namespace protrain;

/// The device peak, or 0 when something is refused.
constexpr std::uint64_t peak(std::size_t blocks, std::size_t persistent, update::timing time) {
  trace::trace const t = test::small_trace(blocks);
  chunk::layout const l = test::small_layout(t);
  schedule::knobs k = test::small_knobs(l, blocks, persistent);
  k.time = time;
  auto const p = schedule::compile(t, l, k);
  bool const good = p.has_value() && schedule::verify(*p, t, l).ok;
  return good ? schedule::memory_of(*p, space::device).peak : 0;
}

static_assert(peak(1, 0, update::timing::after_backward) > 0);
#if defined(__clang__) || defined(__CUDACC__)
constexpr std::size_t affordable = 8;
#else
constexpr std::size_t affordable = 16;
#endif
static_assert(peak(affordable, 3, update::timing::during_backward) > 0);
static_assert(peak(affordable, 0, update::timing::after_backward) > 0);

/// Damage is seen in constant evaluation too.
constexpr schedule::rejection without_first_dependency() {
  trace::trace const t = test::small_trace(4);
  chunk::layout const l = test::small_layout(t);
  auto p = *schedule::compile(t, l, test::small_knobs(l, 4, 1));
  for (schedule::instruction& i : p.instructions) {
    if (i.dependency_count > 0) {
      i.dependency_count = 0;
      break;
    }
  }
  return schedule::verify(p, t, l).reason;
}
static_assert(without_first_dependency() == schedule::rejection::race);

}  // namespace
