// SPDX-License-Identifier: Apache-2.0
// All 2^32 patterns of an fp32: the split of a master, and rounding to half precision against the
// processor's own.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace every_float_test {

namespace {

constexpr std::uint64_t patterns = std::uint64_t{1} << 32U;

/// Patterns that the split loses, or whose high half is not the working value.
std::uint64_t wrongly_split() {
  std::uint64_t wrong = 0;
  for (std::uint64_t p = 0; p < patterns; ++p) {
    auto const bits = static_cast<std::uint32_t>(p);
    auto const x = std::bit_cast<float>(bits);
    protrain::split_value const halves = protrain::split_master(x);
    auto const back = std::bit_cast<std::uint32_t>(protrain::merge_master(halves));
    bool const nan = (bits & 0x7FFFFFFFU) > 0x7F800000U;
    // A NaN is one in the working value alone as well as in the master.
    bool const good = nan ? back == 0x7FC00000U && halves.hi.bits == 0x7FC0U : back == bits;
    wrong += good && halves.hi == protrain::to_bfloat16(x) ? 0U : 1U;
  }
  return wrong;
}

#if defined(__x86_64__)
/// Patterns that eight conversions of the processor round otherwise.
[[gnu::target("avx,f16c")]] std::uint64_t otherwise_rounded() {
  std::uint64_t wrong = 0;
  std::array<std::uint32_t, 8> bits{};
  std::array<std::uint16_t, 8> halves{};
  for (std::uint64_t p = 0; p < patterns; p += 8) {
    for (std::size_t k = 0; k < 8; ++k) {
      bits[k] = static_cast<std::uint32_t>(p + k);
    }
    __m256 const x =
        _mm256_castsi256_ps(_mm256_loadu_si256(reinterpret_cast<__m256i const*>(bits.data())));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(halves.data()),
                     _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    for (std::size_t k = 0; k < 8; ++k) {
      std::uint16_t const got = protrain::to_float16(std::bit_cast<float>(bits[k])).bits;
      bool const nan = (bits[k] & 0x7FFFFFFFU) > 0x7F800000U;
      wrong += got == (nan ? 0x7E00U : halves[k]) ? 0U : 1U;
    }
  }
  return wrong;
}
#endif

}  // namespace

TEST_CASE("the split is exact for every fp32, and a NaN stays one in both halves") {
  CHECK(wrongly_split() == 0);
}

#if defined(__x86_64__)
TEST_CASE("every fp32 is rounded to half precision as the processor does") {
  if (__builtin_cpu_supports("f16c") == 0) {
    MESSAGE("skipped: this processor has no conversions");
    return;
  }
  CHECK(otherwise_rounded() == 0);
}
#endif

}  // namespace every_float_test
