// SPDX-License-Identifier: Apache-2.0
#pragma once
// What optimizer kernels are written in: the operations of core/arithmetic.hpp, and the rules of
// state and gradients.

#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::optim {

using core::canonical;
using core::widen;
using core::ieee::fused;
using core::ieee::product;
using core::ieee::quotient;
using core::ieee::settled;
using core::ieee::square_root;
using core::ieee::sum;

/// What optimizer state stores: below 2^-126 in magnitude +0, a NaN the canonical one. Without it
/// the state of a parameter with no gradient ends in denormals, at several times the cost.
PROTRAIN_HD constexpr float stored_state(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7FFFFFFFU) < 0x00800000U ? 0.0F : canonical(x);
}

/// Element types that gradients come in: fp32, and types that `widen` makes fp32. Laws
/// (test/law/gradient_element.hpp): `widen` is exact; memory of zeros holds zeros.
template <class T>
concept gradient_element =
    std::regular<T> && (std::same_as<T, float> || !std::is_arithmetic_v<T>) && requires(T const x) {
      { widen(x) } noexcept -> std::same_as<float>;
    };
static_assert(gradient_element<float> && gradient_element<bfloat16> && gradient_element<float16>);
// Numbers that convert to float would be rounded on the way.
static_assert(!gradient_element<double> && !gradient_element<int> && !gradient_element<double*>);

}  // namespace protrain::inline v0::optim
