// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of update::state_format_policy.

#include "protrain/core/dtype.hpp"
#include "protrain/update/state_format.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace protrain::test {

/// The first law that format `P` breaks; empty if it keeps them all.
template <update::state_format_policy P>
std::string broken_state_format_law() {
  // fp32 m and v, and of the fp32 master what the value doesn't hold.
  if (P::state_bytes < 2 * size_of(dtype::f32) ||
      P::value_bytes + P::state_bytes < 3 * size_of(dtype::f32)) {
    return "room for m, v and the master";
  }
  for (dtype const type : {dtype::f32, dtype::bf16, dtype::f16}) {
    auto const same = update::bytes_of({.type = type, .state = P::format});
    if (!same) {
      continue;
    }
    if (P::value_bytes != size_of(type)) {
      return "value_bytes is the size of the working type";
    }
    if (P::state_bytes != same->state) {
      return "equal for equal formats";
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a state format", P, state_format_laws) {
  CHECK(broken_state_format_law<P>() == "");
}

}  // namespace protrain::test
