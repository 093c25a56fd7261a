// SPDX-License-Identifier: Apache-2.0
#pragma once
// The law of optim::gradient_element, for types of at most 16 bits, all of whose patterns are tried,
// and of 32 bits, of which a sample is.

#include "protrain/optim/arithmetic.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace protrain::test {

/// The first law that T breaks; empty if it keeps them all. Two values that differ and widen to one
/// are a rounding.
template <optim::gradient_element T>
  requires(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4)
std::string broken_gradient_law() {
  std::map<std::uint32_t, T> seen;
  std::uint64_t const patterns = std::uint64_t{1} << (8 * sizeof(T));
  for (std::uint64_t i = 0; i < patterns; i += sizeof(T) == 4 ? 50'021 : 1) {
    T x{};
    std::memcpy(static_cast<void*>(&x), &i, sizeof(T));
    float const wide = widen(x);
    auto const [at, fresh] = seen.emplace(std::bit_cast<std::uint32_t>(wide), x);
    if (!fresh && !std::isnan(wide) && std::memcmp(&at->second, &x, sizeof(T)) != 0) {
      return "widen is exact";
    }
  }
  return widen(T{}) == 0 ? "" : "a buffer of zeros holds zeros";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a gradient element", T, gradient_laws) {
  CHECK(broken_gradient_law<T>() == "");
}

}  // namespace protrain::test
