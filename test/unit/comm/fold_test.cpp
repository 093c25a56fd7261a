// SPDX-License-Identifier: Apache-2.0
// The ordered fold: every number of ranks, odd sizes, special values, and whatever floating-point
// environment the caller is in.

#include "protrain/comm/fold.hpp"

#include "protrain/core/arithmetic.hpp"
#include "test/law/comm.hpp"
#include "test/support/contract.hpp"

#include <doctest/doctest.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace protrain::test {
namespace {

template <stored_float T>
std::uint64_t wrongly_folded(dtype type, std::uint32_t ranks, std::uint64_t n) {
  std::vector<T> parts;
  for (std::uint32_t r = 0; r < ranks; ++r) {
    for (std::uint64_t i = 0; i < n; ++i) {
      parts.push_back(contribution<T>(r, i));
    }
  }
  watched<T> out(n);
  comm::fold(type, out.data(), reinterpret_cast<std::byte const*>(parts.data()), ranks, n);
  std::uint64_t wrong = out.whole() ? 0 : n + 1;
  for (std::uint64_t i = 0; i < n; ++i) {
    wrong += same_bits(out.get(i), folded_by_numbers<T>(ranks, i)) ? 0U : 1U;
  }
  return wrong;
}

std::uint64_t wrong_in_any_type() {
  std::uint64_t wrong = 0;
  for (std::uint32_t const ranks : {1U, 2U, 3U, 4U, 5U, 7U, 8U}) {
    for (std::uint64_t const n : {0U, 1U, 7U, 64U, 1001U}) {
      wrong += wrongly_folded<float>(dtype::f32, ranks, n) +
               wrongly_folded<bfloat16>(dtype::bf16, ranks, n) +
               wrongly_folded<float16>(dtype::f16, ranks, n);
    }
  }
  return wrong;
}

float folded(std::vector<float> const& parts) {
  float out = 0;
  comm::fold(&out, parts.data(), static_cast<std::uint32_t>(parts.size()), 1);
  return out;
}

std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }

}  // namespace

TEST_CASE("the fold is the one in fp64's eyes for every number of ranks") {
  CHECK(wrong_in_any_type() == 0);
}

TEST_CASE("a fold starts at rank 0, not at zero, and stores the canonical NaN") {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  CHECK(bits_of(folded({-0.0F})) == 0x80000000U);
  CHECK(bits_of(folded({-0.0F, -0.0F})) == 0x80000000U);
  CHECK(bits_of(folded({-0.0F, 0.0F})) == 0);
  CHECK(folded({1.0F, infinity}) == infinity);
  CHECK(bits_of(folded({infinity, -infinity})) == 0x7FC00000U);
  CHECK(bits_of(folded({1.0F, std::bit_cast<float>(0xFF812345U)})) == 0x7FC00000U);
  CHECK(folded({0x1p127F, 0x1p127F, -0x1p127F}) == infinity);
  CHECK(bits_of(folded({0x1p-149F, 0x1p-149F})) == 2);
}

#if defined(__SSE__)
TEST_CASE("no floating-point environment of the caller changes a bit") {
  unsigned const mine = _mm_getcsr();
  for (unsigned const theirs : {0x9FC0U, 0x3F80U, 0x5F80U, 0xFFC0U}) {  // flushing, rounding modes
    _mm_setcsr(theirs);
    float const tiny = folded({0x1p-149F, 0x1p-149F});
    float const rounded = folded({1.0F, 0x1.8p-24F});
    float const after = folded({-1.0F, -0x1.8p-24F});
    unsigned const left = _mm_getcsr();
    _mm_setcsr(mine);
    CHECK(bits_of(tiny) == 2);
    CHECK(rounded == 1.0F + 0x1p-23F);
    CHECK(after == -1.0F - 0x1p-23F);
    CHECK((left & 0xFFC0U) == theirs);
  }
}
#endif

TEST_CASE("other types are refused") {
  throwing_contracts const armed;
  CHECK_THROWS_AS(comm::fold(dtype::i32, nullptr, nullptr, 2, 0), contract_broken);
}

}  // namespace protrain::test
