// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of optim::update_rule, for any value of a rule. That every operation is one of
// arithmetic.hpp's is seen by compiling the same kernels with other options.

#include "protrain/core/philox.hpp"
#include "protrain/optim/update_rule.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace protrain::test {
namespace detail {

/// A finite gradient with 24 random bits and an exponent within [low, high] (powers of two).
inline float drawn_gradient(std::uint64_t stream, std::size_t i, int low, int high) {
  philox_words const w = initial_stream(20240229, stream).quad(i);
  auto const range = static_cast<std::uint32_t>(high - low + 1);
  auto const exponent = static_cast<std::uint32_t>(low + 127) + w[1] % range;
  return std::bit_cast<float>((w[0] & 0x807FFFFFU) | (exponent << 23U));
}

inline bool is_foreign_nan(float x) {
  return std::isnan(x) && std::bit_cast<std::uint32_t>(x) != 0x7FC00000U;
}

template <optim::update_rule R>
struct element {
  float value = 1;
  optim::element_state<R> state{};

  bool holds_foreign_nan() const {
    bool found = is_foreign_nan(value);
    for (float const x : state) {
      found = found || is_foreign_nan(x);
    }
    return found;
  }
  bool holds_odd_state() const {
    bool found = false;
    for (float const x : state) {
      found = found || (x != 0.0F && !std::isnormal(x));
    }
    return found;
  }
  bool same_bits(element const& other) const {
    bool same = std::bit_cast<std::uint32_t>(value) == std::bit_cast<std::uint32_t>(other.value);
    for (std::size_t i = 0; i < state.size(); ++i) {
      same = same &&
             std::bit_cast<std::uint32_t>(state[i]) == std::bit_cast<std::uint32_t>(other.state[i]);
    }
    return same;
  }
};

template <optim::update_rule R>
element<R> after_a_hundred_steps(R const& rule) {
  element<R> e{.value = 0.5F};
  for (std::size_t i = 0; i < 100; ++i) {
    auto const t = static_cast<std::int64_t>(i) + 1;
    R::element(
        rule.prepare(1e-3, t, t % 2 != 0), 0.5F, drawn_gradient(21, i, -20, 10), e.value, e.state);
  }
  return e;
}

/// A first gradient, then none: nothing decays into denormals, and everything stays finite.
template <optim::update_rule R>
bool goes_to_rest(R const& rule) {
  for (std::size_t i = 0; i < 32; ++i) {
    element<R> e{};
    float gradient = drawn_gradient(22, i, -70, 10);
    for (std::int64_t t = 1; t <= 2000; ++t) {
      R::element(rule.prepare(1e-3, t, true), 1.0F, gradient, e.value, e.state);
      gradient = 0;
      if (e.holds_odd_state()) {
        return false;
      }
    }
    if (!std::isfinite(e.value)) {
      return false;
    }
  }
  return true;
}

/// A NaN or infinity as gradient, parameter or state leaves canonical NaNs only.
template <optim::update_rule R>
bool stores_canonical_nans(R const& rule) {
  auto const step = rule.prepare(1e-3, 1, true);
  bool good = true;
  for (float const bad : {std::bit_cast<float>(0xFFC00000U),
                          std::bit_cast<float>(0x7FFFFFFFU),
                          std::numeric_limits<float>::infinity()}) {
    element<R> gradient{};
    R::element(step, 1.0F, bad, gradient.value, gradient.state);
    element<R> parameter{.value = bad};
    R::element(step, 1.0F, 0.5F, parameter.value, parameter.state);
    good = good && !gradient.holds_foreign_nan() && !parameter.holds_foreign_nan();
    for (std::size_t i = 0; i < R::state_tensors; ++i) {
      element<R> state{};
      state.state[i] = bad;
      R::element(step, 1.0F, 0.5F, state.value, state.state);
      good = good && !state.holds_foreign_nan();
    }
  }
  return good;
}

}  // namespace detail

/// The first law that `rule` breaks; empty if it keeps them all.
template <optim::update_rule R>
std::string broken_update_rule_law(R const& rule) {
  R const other = rule;
  if (!(other.prepare(1e-3, 7, true) == rule.prepare(1e-3, 7, true))) {
    return "equal rules prepare equal steps";
  }
  if (!detail::after_a_hundred_steps(rule).same_bits(detail::after_a_hundred_steps(other))) {
    return "element is a function of its arguments' bits";
  }
  if (!detail::goes_to_rest(rule)) {
    return "no denormal state, everything finite";
  }
  if (!detail::stores_canonical_nans(rule)) {
    return "no NaN but 0x7FC00000";
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of an update rule", R, update_rule_laws) {
  CHECK(broken_update_rule_law(R{}) == "");
}

}  // namespace protrain::test
