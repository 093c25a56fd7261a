// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of gradients on eight elements at a time, for x86 with AVX2, FMA and F16C: the operations of
// the scalar loops one by one, hence their bits. Called only where the processor has all three.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"
#include "protrain/optim/detail/adamw_avx2.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

namespace protrain::inline v0::optim::detail::avx2 {

// NOLINTBEGIN(portability-simd-intrinsics)

/// The tree of a whole granule (norm.hpp): registers 0 to 3 are lanes 0 to 31.
template <class T>
[[gnu::target("avx2,fma,f16c")]] inline float granule_squares(T const* gradient) noexcept {
  __m256 lane[4];
  for (std::size_t k = 0; k < 4; ++k) {
    __m256 const x = load(gradient + width * k);
    lane[k] = _mm256_mul_ps(x, x);
  }
  for (std::size_t row = 32; row < 128; row += 32) {
    for (std::size_t k = 0; k < 4; ++k) {
      __m256 const x = load(gradient + row + width * k);
      lane[k] = _mm256_fmadd_ps(x, x, lane[k]);
    }
  }
  __m256 const sixteen = _mm256_add_ps(lane[0], lane[2]);
  __m256 const rest = _mm256_add_ps(lane[1], lane[3]);
  __m256 const eight = _mm256_add_ps(sixteen, rest);
  __m128 const four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// Adds whole vectors and returns how many elements that were.
template <class T>
[[gnu::target("avx2,fma,f16c")]] std::size_t add(float* accumulator,
                                                 T const* contribution,
                                                 std::size_t n) noexcept {
  std::size_t const whole = n - n % width;
  for (std::size_t i = 0; i < whole; i += width) {
    _mm256_storeu_ps(accumulator + i, _mm256_add_ps(load(accumulator + i), load(contribution + i)));
  }
  return whole;
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace protrain::inline v0::optim::detail::avx2

#endif
