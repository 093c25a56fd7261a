// SPDX-License-Identifier: Apache-2.0
#pragma once
// The fp32 operations of the arithmetic contract, each one IEEE operation on host and device, and
// the one rounding of fp32 to what memory holds.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>

namespace protrain::inline v0::core {

/// A kernel written in these alone, with no `product` as operand of `sum`, has the same bits under
/// every contraction setting and on every device.
namespace ieee {

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

}  // namespace ieee

/// A NaN becomes the one that is stored.
PROTRAIN_HD constexpr float canonical(float x) noexcept {
  auto const bits = std::bit_cast<std::uint32_t>(x);
  return std::bit_cast<float>(is_nan_bits(bits) ? std::uint32_t{canonical_nan_bits} : bits);
}

/// To fp32, exactly.
PROTRAIN_HD constexpr float widen(float x) noexcept { return x; }
PROTRAIN_HD constexpr float widen(bfloat16 x) noexcept { return to_float(x); }
PROTRAIN_HD constexpr float widen(float16 x) noexcept { return to_float(x); }

/// The element types of values and gradients.
template <class T>
concept stored_float =
    std::same_as<T, float> || std::same_as<T, bfloat16> || std::same_as<T, float16>;

/// From fp32, rounded once as every format, export and load does; a NaN becomes T's canonical one.
template <stored_float T>
PROTRAIN_HD constexpr T narrow(float x) noexcept {
  if constexpr (std::same_as<T, bfloat16>) {
    return to_bfloat16(x);
  } else if constexpr (std::same_as<T, float16>) {
    return to_float16(x);
  } else {
    return canonical(x);
  }
}

}  // namespace protrain::inline v0::core
