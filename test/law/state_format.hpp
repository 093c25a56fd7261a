// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of update::state_format_policy.

#include "protrain/core/dtype.hpp"
#include "protrain/update/state_format.hpp"

#include <doctest/doctest.h>

#include <cstdint>

namespace protrain::test {

/// Bytes of the working type that goes with a format.
constexpr std::uint64_t working_bytes(model::state_format format) {
  for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
    if (model::default_state(type) == format) {
      return size_of(type);
    }
  }
  return 0;
}

TEST_CASE_TEMPLATE_DEFINE("laws of a state format", P, state_format_laws) {
  static_assert(update::state_format_policy<P>);
  CHECK(P::value_bytes == working_bytes(P::format));
  // fp32 m and v, and of the fp32 master what the value doesn't hold.
  CHECK(P::state_bytes >= 2 * size_of(dtype::f32));
  CHECK(P::value_bytes + P::state_bytes >= 3 * size_of(dtype::f32));
  CHECK(P{} == P{});
}

}  // namespace protrain::test
