// SPDX-License-Identifier: Apache-2.0
#pragma once
// The global gradient norm, with bits that don't depend on chunks, ranks or order.
// Granules of 128 elements are summed by one fixed fp32 tree, the granules exactly.

#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/core/math.hpp"
#include "protrain/optim/arithmetic.hpp"
#include "protrain/optim/detail/sums_avx2.hpp"
#include "protrain/optim/detail/sums_avx512.hpp"
#include "protrain/optim/exact_sum.hpp"
#include "protrain/optim/vectors.hpp"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>

namespace protrain::inline v0::optim {

/// Elements of one tensor that one fp32 tree covers.
inline constexpr std::size_t granule = element_granule;

/// Lanes of the tree: a warp on a GPU, two to eight vector registers on a CPU.
inline constexpr std::size_t granule_lanes = 32;
static_assert(granule == 4 * granule_lanes);

namespace detail {
// The tree: lane i takes elements i, i + 32, i + 64 and i + 96 of the granule, in this order, as
// x * x for the first and fma(x, x, lane) for the others; then lane i adds lane i + 16, + 8, + 4,
// + 2, + 1. In a warp: four coalesced loads and a butterfly of __shfl_xor_sync from 16 down to 1,
// after which every lane holds the sum (fp32 addition commutes).
inline float reduce_lanes(std::array<float, granule_lanes>& lane) noexcept {
  for (std::size_t width = granule_lanes / 2; width > 0; width /= 2) {
    for (std::size_t i = 0; i < width; ++i) {
      lane[i] = sum(lane[i], lane[i + width]);
    }
  }
  return lane[0];
}

template <gradient_element T>
float whole_granule_sum([[maybe_unused]] vectors with, T const* gradient) noexcept {
#if defined(__x86_64__)
  if constexpr (stored_float<T>) {
    if (with == vectors::avx512) {
      return avx512::granule_squares(gradient);
    }
    if (with == vectors::avx2) {
      return avx2::granule_squares(gradient);
    }
  }
#endif
  std::array<float, granule_lanes> lane{};
  for (std::size_t i = 0; i < granule_lanes; ++i) {
    float const x = widen(gradient[i]);
    lane[i] = product(x, x);
  }
  for (std::size_t row = granule_lanes; row < granule; row += granule_lanes) {
    for (std::size_t i = 0; i < granule_lanes; ++i) {
      float const x = widen(gradient[row + i]);
      lane[i] = fused(x, x, lane[i]);
    }
  }
  return reduce_lanes(lane);
}
}  // namespace detail

/// Sum of squares of one granule, n <= 128; what is missing counts as zeros. Not finite if an
/// element isn't, or if the squares of finite elements overflow fp32. The processor supports
/// `with`; the bits don't depend on it.
template <gradient_element T>
float granule_sum(T const* gradient, std::size_t n, vectors with = widest_vectors()) {
  PROTRAIN_EXPECT(n <= granule, "a granule has at most 128 elements");
  float_environment const environment;
  if (n == granule) {
    return settled(detail::whole_granule_sum(with, gradient));
  }
  std::array<T, granule> padded{};
  for (std::size_t i = 0; i < n; ++i) {
    padded[i] = gradient[i];
  }
  return settled(detail::whole_granule_sum(with, padded.data()));
}

/// Adds the granules of `n` elements of one tensor to `total`. `gradient` lies at a multiple of 128
/// elements from the start of its tensor, and only the tensor's end may be a partial granule.
template <gradient_element T>
void add_squares(exact_sum& total,
                 T const* gradient,
                 std::size_t n,
                 vectors with = widest_vectors()) {
  float_environment const environment;
  std::size_t const whole = n - (n % granule);
  for (std::size_t i = 0; i < whole; i += granule) {
    total.add(detail::whole_granule_sum(with, gradient + i));
  }
  if (whole != n) {
    total.add(granule_sum(gradient + whole, n - whole, with));
  }
}

/// fp32(sqrt(fp64(sum))); the canonical NaN if any granule was not finite, be it of infinities.
inline float norm(exact_sum const& total) noexcept {
  if (!total.finite()) {
    return std::bit_cast<float>(canonical_nan_bits);
  }
  float_environment const environment;
  return settled(static_cast<float>(std::sqrt(settled(total.value()))));
}

}  // namespace protrain::inline v0::optim
