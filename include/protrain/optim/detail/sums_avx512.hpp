// SPDX-License-Identifier: Apache-2.0
#pragma once
// Sums of gradients on sixteen elements at a time, for x86 with AVX-512F: the operations of the
// scalar loops one by one, hence their bits. Called only where the processor has it.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"
#include "protrain/optim/detail/adamw_avx512.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>

namespace protrain::inline v0::optim::detail::avx512 {

// NOLINTBEGIN(portability-simd-intrinsics)

/// The tree of a whole granule (norm.hpp): the two registers are lanes 0 to 31.
template <class T>
[[gnu::target("avx512f")]] inline float granule_squares(T const* gradient) noexcept {
  __m512 const first = load(gradient);
  __m512 const second = load(gradient + width);
  __m512 low = _mm512_mul_ps(first, first);
  __m512 high = _mm512_mul_ps(second, second);
  for (std::size_t row = 32; row < 128; row += 32) {
    __m512 const x = load(gradient + row);
    __m512 const y = load(gradient + row + width);
    low = _mm512_fmadd_ps(x, x, low);
    high = _mm512_fmadd_ps(y, y, high);
  }
  alignas(64) float lane[width];
  _mm512_store_ps(lane, _mm512_add_ps(low, high));
  __m128 const quarter[4] = {
      _mm_load_ps(lane), _mm_load_ps(lane + 4), _mm_load_ps(lane + 8), _mm_load_ps(lane + 12)};
  __m128 const eight = _mm_add_ps(quarter[0], quarter[2]);
  __m128 const rest = _mm_add_ps(quarter[1], quarter[3]);
  __m128 const four = _mm_add_ps(eight, rest);
  __m128 const two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

/// Adds whole vectors and returns how many elements that were.
template <class T>
[[gnu::target("avx512f")]] std::size_t add(float* accumulator,
                                           T const* contribution,
                                           std::size_t n) noexcept {
  std::size_t const whole = n - n % width;
  for (std::size_t i = 0; i < whole; i += width) {
    _mm512_storeu_ps(accumulator + i, _mm512_add_ps(load(accumulator + i), load(contribution + i)));
  }
  return whole;
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace protrain::inline v0::optim::detail::avx512

#endif
