// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of optim::master_arrays. A fixture F owns memory for `F(n)` elements and has `arrays()`,
// the model under test.

#include "protrain/optim/master.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace protrain::test {
namespace detail {

/// Every NaN is the same: the laws leave open which one comes back.
inline std::uint32_t bits_but_for_nan(float x) {
  return std::isnan(x) ? 0x7FC00000U : std::bit_cast<std::uint32_t>(x);
}

}  // namespace detail

/// The first law that a fixture's model breaks; empty if it keeps them all.
template <class F>
std::string broken_master_law() {
  constexpr std::size_t n = 5;
  F owner(n);
  optim::master_arrays auto const m = owner.arrays();
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < n; ++i) {
    m.store(i, static_cast<float>(i));
  }
  for (std::uint64_t round = 0; round < 100'000; ++round) {
    bits += 0x9E37'79B9U;  // every pattern in turn, were there 2^32 rounds
    float const x = std::bit_cast<float>(bits);
    m.store(2, x);
    if (detail::bits_but_for_nan(m.load(2)) != detail::bits_but_for_nan(x)) {
      return "what was stored loads with the same bits";
    }
  }
  for (std::size_t const i : {0U, 1U, 3U, 4U}) {
    if (m.load(i) != static_cast<float>(i)) {
      return "element i is element i";
    }
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of master arrays", F, master_laws) {
  CHECK(broken_master_law<F>() == "");
}

}  // namespace protrain::test
