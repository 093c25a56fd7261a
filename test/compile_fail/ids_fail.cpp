// SPDX-License-Identifier: Apache-2.0
// A chunk is never passed where a block is expected, and bytes are no times.
// expect: no match for|no viable|could not convert|no known conversion|cannot convert
// expect: no match for|invalid operands

#include "protrain/core/units.hpp"
#include "protrain/trace/trace.hpp"

std::uint64_t try_it(protrain::trace::trace const& t) {
#if FAULT_ON == 1
  return t.shape(protrain::chunk_id{0}).input.value;
#elif FAULT_ON == 2
  return (t.batch + protrain::picoseconds{1}).value;
#else
  return t.shape(protrain::block_id{0}).input.value + t.batch.value;
#endif
}
