// SPDX-License-Identifier: Apache-2.0
#pragma once
// The one order in which contributions of ranks are added: an fp32 left fold from rank 0 upwards,
// rounded once. Every communicator whose reductions are ordered ends in it.

#include "protrain/core/arithmetic.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/float_environment.hpp"
#include "protrain/core/strict_math.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::comm {

/// Element `i` of the sum of `ranks` parts of `elements` each, which lie one after the other in
/// rank order; ranks > 0.
template <stored_float T>
PROTRAIN_HD T
folded(T const* parts, std::uint32_t ranks, std::uint64_t elements, std::uint64_t i) noexcept {
  float total = widen(parts[i]);
  for (std::uint64_t r = 1; r < ranks; ++r) {
    total = ieee::sum(total, widen(parts[r * elements + i]));
  }
  return narrow<T>(total);
}

/// Every element of the sum, to `out`, which overlaps no part.
template <stored_float T>
void fold(T* out, T const* parts, std::uint32_t ranks, std::uint64_t elements) noexcept {
  float_environment const environment;
  for (std::uint64_t i = 0; i < elements; ++i) {
    out[i] = folded(parts, ranks, elements, i);
  }
}

/// The types that an ordered reduction takes.
constexpr bool can_fold(dtype type) noexcept {
  return type == dtype::f32 || type == dtype::bf16 || type == dtype::f16;
}

/// By element type at run time.
inline void fold(dtype type,
                 std::byte* out,
                 std::byte const* parts,
                 std::uint32_t ranks,
                 std::uint64_t elements) {
  auto const as = [&]<stored_float T>(std::type_identity<T>) {
    fold(reinterpret_cast<T*>(out), reinterpret_cast<T const*>(parts), ranks, elements);
  };
  PROTRAIN_EXPECT(can_fold(type), "ordered reductions are of fp32, bf16 or fp16");
  if (type == dtype::bf16) {
    as(std::type_identity<bfloat16>{});
  } else if (type == dtype::f16) {
    as(std::type_identity<float16>{});
  } else {
    as(std::type_identity<float>{});
  }
}

}  // namespace protrain::inline v0::comm
