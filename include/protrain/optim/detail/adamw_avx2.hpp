// SPDX-License-Identifier: Apache-2.0
#pragma once
// AdamW on eight elements at a time, for x86 with AVX2, FMA and F16C: the operations of
// `adamw_element` one by one, hence its bits. Called only where the processor has all three.

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

namespace protrain::inline v0::optim::detail::avx2 {

// Every function names its target: none depends on the flags of the file that includes it. C++20
// has no portable vectors with a fused multiply-add.
// NOLINTBEGIN(portability-simd-intrinsics)

inline constexpr std::size_t width = 8;

[[gnu::target("avx2,fma,f16c")]] inline __m256 load(float const* from) noexcept {
  return _mm256_loadu_ps(from);
}
[[gnu::target("avx2,fma,f16c")]] inline __m256 load(bfloat16 const* from) noexcept {
  __m128i const halves = _mm_loadu_si128(reinterpret_cast<__m128i const*>(from));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
[[gnu::target("avx2,fma,f16c")]] inline __m256 load(float16 const* from) noexcept {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<__m128i const*>(from)));
}

/// The low 16 bits of each of eight integers, which are of one sign and fit.
[[gnu::target("avx2,fma,f16c")]] inline __m128i gathered(__m256i pairs) noexcept {
  return _mm256_castsi256_si128(_mm256_permute4x64_epi64(pairs, 0x08));
}
[[gnu::target("avx2,fma,f16c")]] inline void store(std::uint16_t* to, __m256i x) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), gathered(_mm256_packus_epi32(x, x)));
}
[[gnu::target("avx2,fma,f16c")]] inline void store(std::int16_t* to, __m256i x) noexcept {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), gathered(_mm256_packs_epi32(x, x)));
}

/// bf16 of values without foreign NaNs, as integers.
[[gnu::target("avx2,fma,f16c")]] inline __m256i rounded(__m256 x) noexcept {
  __m256i const bits = _mm256_castps_si256(x);
  return _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
}

[[gnu::target("avx2,fma,f16c")]] inline __m256 master(whole_master const& at,
                                                      std::size_t i) noexcept {
  return load(at.value + i);
}
[[gnu::target("avx2,fma,f16c")]] inline void keep(whole_master const& at,
                                                  std::size_t i,
                                                  __m256 x) noexcept {
  _mm256_storeu_ps(at.value + i, x);
}

[[gnu::target("avx2,fma,f16c")]] inline __m256 master(split_halves const& at,
                                                      std::size_t i) noexcept {
  __m256i const high = _mm256_castps_si256(load(at.hi + i));
  __m128i const low = _mm_loadu_si128(reinterpret_cast<__m128i const*>(at.lo + i));
  return _mm256_castsi256_ps(_mm256_add_epi32(high, _mm256_cvtepi16_epi32(low)));
}
[[gnu::target("avx2,fma,f16c")]] inline void keep(split_halves const& at,
                                                  std::size_t i,
                                                  __m256 x) noexcept {
  __m256i const high = rounded(x);
  store(&at.hi[i].bits, high);
  store(at.lo + i, _mm256_sub_epi32(_mm256_castps_si256(x), _mm256_slli_epi32(high, 16)));
}

template <class T>
[[gnu::target("avx2,fma,f16c")]] inline __m256 master(master_beside<T> const& at,
                                                      std::size_t i) noexcept {
  return load(at.master + i);
}
[[gnu::target("avx2,fma,f16c")]] inline void keep(master_beside<bfloat16> const& at,
                                                  std::size_t i,
                                                  __m256 x) noexcept {
  _mm256_storeu_ps(at.master + i, x);
  store(&at.value[i].bits, rounded(x));
}
[[gnu::target("avx2,fma,f16c")]] inline void keep(master_beside<float16> const& at,
                                                  std::size_t i,
                                                  __m256 x) noexcept {
  _mm256_storeu_ps(at.master + i, x);
  __m128i const half = _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(at.value + i), half);
}

/// As optim::canonical: by bits, so that -ffinite-math-only can't fold it away.
[[gnu::target("avx2,fma,f16c")]] inline __m256 canonical(__m256 x) noexcept {
  __m256i const bits = _mm256_castps_si256(x);
  __m256i const magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  __m256i const nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  return _mm256_castsi256_ps(_mm256_blendv_epi8(bits, _mm256_set1_epi32(0x7FC00000), nan));
}
/// As optim::stored_state.
[[gnu::target("avx2,fma,f16c")]] inline __m256 stored(__m256 x) noexcept {
  __m256i const bits = _mm256_castps_si256(canonical(x));
  __m256i const magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7FFFFFFF));
  __m256i const small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  return _mm256_castsi256_ps(_mm256_andnot_si256(small, bits));
}

/// The numbers of a step in every lane.
struct lanes {
  __m256 scale;
  __m256 minus_a;
  __m256 r;
  __m256 k;
  __m256 b1;
  __m256 rest1;
  __m256 b2;
  __m256 rest2;
  __m256 eps;
};
[[gnu::target("avx2,fma,f16c")]] inline lanes lanes_of(adamw_step const& step, float s) noexcept {
  return {.scale = _mm256_set1_ps(s),
          .minus_a = _mm256_set1_ps(-step.a),
          .r = _mm256_set1_ps(step.r),
          .k = _mm256_set1_ps(step.k),
          .b1 = _mm256_set1_ps(step.b1),
          .rest1 = _mm256_set1_ps(step.one_minus_b1),
          .b2 = _mm256_set1_ps(step.b2),
          .rest2 = _mm256_set1_ps(step.one_minus_b2),
          .eps = _mm256_set1_ps(step.eps)};
}

/// Steps the vector at element i.
template <class G, class M>
[[gnu::target("avx2,fma,f16c"), gnu::always_inline]] inline void update_one(
    lanes const& c, G const* gradient, M const& at, float* m, float* v, std::size_t i) noexcept {
  __m256 const g = _mm256_mul_ps(c.scale, load(gradient + i));
  __m256 const m1 = _mm256_fmadd_ps(c.b1, load(m + i), _mm256_mul_ps(c.rest1, g));
  __m256 const v1 = _mm256_fmadd_ps(c.b2, load(v + i), _mm256_mul_ps(_mm256_mul_ps(c.rest2, g), g));
  __m256 const d = _mm256_fmadd_ps(_mm256_sqrt_ps(v1), c.r, c.eps);
  __m256 const kept = _mm256_mul_ps(c.k, master(at, i));
  keep(at, i, canonical(_mm256_fmadd_ps(c.minus_a, _mm256_div_ps(m1, d), kept)));
  _mm256_storeu_ps(m + i, stored(m1));
  _mm256_storeu_ps(v + i, stored(v1));
}

/// Steps whole vectors and returns how many elements that were.
template <class G, class M>
[[gnu::target("avx2,fma,f16c")]] std::size_t update(adamw_step const& step,
                                                    float s,
                                                    G const* gradient,
                                                    M const& masters,
                                                    float* m,
                                                    float* v,
                                                    std::size_t n) noexcept {
  lanes const c = lanes_of(step, s);
  M const at = masters;  // stores through it can't be to itself
  static_assert(block_elements == 4 * width);
  std::size_t i = 0;
  for (; n - i >= block_elements; i += block_elements) {
    prefetch_ahead(gradient, at, m, v, i, n);
    update_one(c, gradient, at, m, v, i);
    update_one(c, gradient, at, m, v, i + width);
    update_one(c, gradient, at, m, v, i + 2 * width);
    update_one(c, gradient, at, m, v, i + 3 * width);
  }
  for (; n - i >= width; i += width) {
    update_one(c, gradient, at, m, v, i);
  }
  return i;
}
// NOLINTEND(portability-simd-intrinsics)

}  // namespace protrain::inline v0::optim::detail::avx2

#endif
