// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW on sixteen elements at a time, for x86 with AVX-512F: the operations of `adamw_element` one
// by one, hence its bits. Called only where the processor has it.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"
#include "protrain/optim/detail/adamw_step.hpp"
#include "protrain/optim/detail/prefetch.hpp"
#include "protrain/optim/master.hpp"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim::detail::avx512 {

// Every function names its target: none depends on the flags of the file that includes it. C++20
// has no portable vectors with a fused multiply-add.
// NOLINTBEGIN(portability-simd-intrinsics)

inline constexpr std::size_t width = 16;

// Operations that g++ writes with an undefined source (and then warns of) take this mask instead.
inline constexpr __mmask16 all = 0xFFFF;

[[gnu::target("avx512f")]] inline __m512 load(float const* from) noexcept {
  return _mm512_loadu_ps(from);
}
[[gnu::target("avx512f")]] inline __m512 load(bfloat16 const* from) noexcept {
  __m256i const halves = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from));
  return _mm512_castsi512_ps(
      _mm512_maskz_slli_epi32(all, _mm512_maskz_cvtepu16_epi32(all, halves), 16));
}
[[gnu::target("avx512f")]] inline __m512 load(float16 const* from) noexcept {
  return _mm512_maskz_cvtph_ps(all, _mm256_loadu_si256(reinterpret_cast<__m256i const*>(from)));
}

/// The low 16 bits of each of sixteen integers.
[[gnu::target("avx512f")]] inline void store(void* to, __m512i x) noexcept {
  _mm256_storeu_si256(static_cast<__m256i*>(to), _mm512_maskz_cvtepi32_epi16(all, x));
}

/// bf16 of values without foreign NaNs, as integers.
[[gnu::target("avx512f")]] inline __m512i rounded(__m512 x) noexcept {
  __m512i const bits = _mm512_castps_si512(x);
  return _mm512_maskz_srli_epi32(all, _mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
}

[[gnu::target("avx512f")]] inline __m512 master(whole_master const& at, std::size_t i) noexcept {
  return load(at.value + i);
}
[[gnu::target("avx512f")]] inline void keep(whole_master const& at,
                                            std::size_t i,
                                            __m512 x) noexcept {
  _mm512_storeu_ps(at.value + i, x);
}

[[gnu::target("avx512f")]] inline __m512 master(split_halves const& at, std::size_t i) noexcept {
  __m512i const high = _mm512_castps_si512(load(at.hi + i));
  __m256i const low = _mm256_loadu_si256(reinterpret_cast<__m256i const*>(at.lo + i));
  return _mm512_castsi512_ps(_mm512_add_epi32(high, _mm512_maskz_cvtepi16_epi32(all, low)));
}
[[gnu::target("avx512f")]] inline void keep(split_halves const& at,
                                            std::size_t i,
                                            __m512 x) noexcept {
  __m512i const high = rounded(x);
  store(at.hi + i, high);
  store(at.lo + i,
        _mm512_sub_epi32(_mm512_castps_si512(x), _mm512_maskz_slli_epi32(all, high, 16)));
}

template <class T>
[[gnu::target("avx512f")]] inline __m512 master(master_beside<T> const& at,
                                                std::size_t i) noexcept {
  return load(at.master + i);
}
[[gnu::target("avx512f")]] inline void keep(master_beside<bfloat16> const& at,
                                            std::size_t i,
                                            __m512 x) noexcept {
  _mm512_storeu_ps(at.master + i, x);
  store(at.value + i, rounded(x));
}
[[gnu::target("avx512f")]] inline void keep(master_beside<float16> const& at,
                                            std::size_t i,
                                            __m512 x) noexcept {
  _mm512_storeu_ps(at.master + i, x);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(at.value + i),
                      _mm512_maskz_cvtps_ph(all, x, _MM_FROUND_TO_NEAREST_INT));
}

/// As optim::canonical: by bits, so that -ffinite-math-only can't fold it away.
[[gnu::target("avx512f")]] inline __m512 canonical(__m512 x) noexcept {
  __m512i const bits = _mm512_castps_si512(x);
  __m512i const magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  __mmask16 const nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7F800000));
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(bits, nan, _mm512_set1_epi32(0x7FC00000)));
}
/// As optim::stored_state.
[[gnu::target("avx512f")]] inline __m512 stored(__m512 x) noexcept {
  __m512i const bits = _mm512_castps_si512(canonical(x));
  __m512i const magnitude = _mm512_and_si512(bits, _mm512_set1_epi32(0x7FFFFFFF));
  __mmask16 const large = _mm512_cmpge_epi32_mask(magnitude, _mm512_set1_epi32(0x00800000));
  return _mm512_castsi512_ps(_mm512_maskz_mov_epi32(large, bits));
}

/// The numbers of a step in every lane.
struct lanes {
  __m512 scale;
  __m512 minus_a;
  __m512 r;
  __m512 k;
  __m512 b1;
  __m512 rest1;
  __m512 b2;
  __m512 rest2;
  __m512 eps;
};
[[gnu::target("avx512f")]] inline lanes lanes_of(adamw_step const& step, float s) noexcept {
  return {.scale = _mm512_set1_ps(s),
          .minus_a = _mm512_set1_ps(-step.a),
          .r = _mm512_set1_ps(step.r),
          .k = _mm512_set1_ps(step.k),
          .b1 = _mm512_set1_ps(step.b1),
          .rest1 = _mm512_set1_ps(step.one_minus_b1),
          .b2 = _mm512_set1_ps(step.b2),
          .rest2 = _mm512_set1_ps(step.one_minus_b2),
          .eps = _mm512_set1_ps(step.eps)};
}

/// Steps the vector at element i.
template <class G, class M>
[[gnu::target("avx512f"), gnu::always_inline]] inline void update_one(
    lanes const& c, G const* gradient, M const& at, float* m, float* v, std::size_t i) noexcept {
  __m512 const g = _mm512_mul_ps(c.scale, load(gradient + i));
  __m512 const m1 = _mm512_fmadd_ps(c.b1, load(m + i), _mm512_mul_ps(c.rest1, g));
  __m512 const v1 = _mm512_fmadd_ps(c.b2, load(v + i), _mm512_mul_ps(_mm512_mul_ps(c.rest2, g), g));
  __m512 const d = _mm512_fmadd_ps(_mm512_maskz_sqrt_ps(all, v1), c.r, c.eps);
  __m512 const kept = _mm512_mul_ps(c.k, master(at, i));
  keep(at, i, canonical(_mm512_fmadd_ps(c.minus_a, _mm512_div_ps(m1, d), kept)));
  _mm512_storeu_ps(m + i, stored(m1));
  _mm512_storeu_ps(v + i, stored(v1));
}

/// Steps whole vectors and returns how many elements that were.
template <class G, class M>
[[gnu::target("avx512f")]] std::size_t update(adamw_step const& step,
                                              float s,
                                              G const* gradient,
                                              M const& masters,
                                              float* m,
                                              float* v,
                                              std::size_t n) noexcept {
  lanes const c = lanes_of(step, s);
  M const at = masters;  // stores through it can't be to itself
  static_assert(block_elements == 2 * width);
  std::size_t i = 0;
  for (; n - i >= block_elements; i += block_elements) {
    prefetch_ahead(gradient, at, m, v, i, n);
    update_one(c, gradient, at, m, v, i);
    update_one(c, gradient, at, m, v, i + width);
  }
  for (; n - i >= width; i += width) {
    update_one(c, gradient, at, m, v, i);
  }
  return i;
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace protrain::inline v0::optim::detail::avx512

#endif
