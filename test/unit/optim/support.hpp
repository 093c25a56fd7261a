// SPDX-License-Identifier: Apache-2.0
#pragma once
// Inputs and digests of the optimizer tests. Integer arithmetic only, so that no compiler flag under
// test can reach them.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/philox.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain_test {

inline constexpr std::uint64_t seed = 20240229;  // printed by the tests that draw

inline std::uint32_t bits_of(float x) { return std::bit_cast<std::uint32_t>(x); }
inline float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

/// Finite values with 24 random bits and an exponent within [low, high] (powers of two).
inline float spread_value(std::uint32_t a, std::uint32_t b, int low, int high) {
  auto const range = static_cast<std::uint32_t>(high - low + 1);
  auto const exponent = static_cast<std::uint32_t>(low + 127) + b % range;
  return from_bits((a & 0x807FFFFFU) | (exponent << 23U));
}

inline std::vector<float> spread_values(std::uint64_t stream, std::size_t n, int low, int high) {
  protrain::random_stream const random = protrain::initial_stream(seed, stream);
  std::vector<float> values(n, 0.0F);
  for (std::size_t i = 0; i < n; ++i) {
    protrain::philox_words const w = random.quad(i);
    values[i] = spread_value(w[0], w[1], low, high);
  }
  return values;
}

inline std::vector<protrain::bfloat16> rounded(std::vector<float> const& values) {
  std::vector<protrain::bfloat16> result;
  result.reserve(values.size());
  for (float const x : values) {
    result.push_back(protrain::to_bfloat16(x));
  }
  return result;
}

inline std::vector<float> magnitudes(std::vector<float> values) {
  for (float& x : values) {
    x = from_bits(bits_of(x) & 0x7FFFFFFFU);
  }
  return values;
}

/// FNV-1a over bytes of values, lowest byte first.
struct digest {
  std::uint64_t hash = 0xCBF29CE484222325U;

  void add(std::uint64_t word, unsigned bytes) {
    for (unsigned i = 0; i < bytes; ++i) {
      hash = (hash ^ ((word >> (8 * i)) & 0xFFU)) * 0x100000001B3U;
    }
  }
  void add(float x) { add(bits_of(x), 4); }
  void add(std::vector<float> const& values) {
    for (float const x : values) {
      add(x);
    }
  }
};

/// Bits as one comparable thing: float equality would take NaN for unequal and -0 for 0.
inline std::vector<std::uint32_t> bits_of(std::vector<float> const& values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (float const x : values) {
    bits.push_back(bits_of(x));
  }
  return bits;
}

}  // namespace protrain_test
