// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fp32 operations of the arithmetic contract, each one IEEE operation on host and device.
// A kernel written in them alone, with no product as operand of `sum`, has the same bits under
// every contraction setting and on every device.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/optim/strict_math.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace protrain::inline v0::optim {

// On the device, flags such as -use_fast_math turn even the _rn intrinsics into .ftz instructions;
// PTX text stays as written.

/// a * b.
PROTRAIN_HD inline float product(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("mul.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a * b;
#endif
}

/// a * b + c, rounded once.
PROTRAIN_HD inline float fused(float a, float b, float c) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("fma.rn.f32 %0, %1, %2, %3;" : "=f"(r) : "f"(a), "f"(b), "f"(c));
  return r;
#else
  return std::fma(a, b, c);
#endif
}

/// a + b, of which neither may be a `product`.
PROTRAIN_HD inline float sum(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("add.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a + b;
#endif
}

/// a / b.
PROTRAIN_HD inline float quotient(float a, float b) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("div.rn.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a / b;
#endif
}

PROTRAIN_HD inline float square_root(float a) noexcept {
#if defined(__CUDA_ARCH__)
  float r;
  asm("sqrt.rn.f32 %0, %1;" : "=f"(r) : "f"(a));
  return r;
#else
  return std::sqrt(a);
#endif
}

/// x, computed here: no compiler moves what made it past a change of the floating-point
/// environment, or contracts it with what uses it.
template <std::floating_point T>
T settled(T x) noexcept {
  T const volatile stored = x;
  return stored;
}

/// A NaN becomes the one that is stored.
PROTRAIN_HD constexpr float canonical(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(is_nan_bits(bits) ? std::uint32_t{canonical_nan_bits} : bits);
}

/// What optimizer state stores: below 2^-126 in magnitude +0, a NaN the canonical one. Without it
/// the state of a parameter with no gradient ends in denormals, at several times the cost.
PROTRAIN_HD constexpr float stored_state(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  return (bits & 0x7FFFFFFFU) < 0x00800000U ? 0.0F : canonical(x);
}

PROTRAIN_HD constexpr float widen(float x) noexcept { return x; }
PROTRAIN_HD constexpr float widen(bfloat16 x) noexcept { return to_float(x); }

/// Element types that gradients come in: fp32, and types that `widen` makes fp32 exactly.
template <class T>
concept gradient_element = std::regular<T> && requires(T const x) {
  { widen(x) } noexcept -> std::same_as<float>;
};
static_assert(gradient_element<float> && gradient_element<bfloat16> && !gradient_element<double*>);

}  // namespace protrain::inline v0::optim
