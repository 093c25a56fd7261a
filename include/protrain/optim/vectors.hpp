// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which vector instructions loops over elements use: a choice of speed, never of bits.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <string_view>

namespace protrain::inline v0::optim {

/// Only sets with a native fused multiply-add: without one a vector loop has other bits.
enum class vectors : std::uint8_t { none, avx2, avx512 };

constexpr std::string_view name_of(vectors v) noexcept {
  return v == vectors::none ? "scalar" : v == vectors::avx2 ? "avx2" : "avx512";
}

/// Whether this processor and its operating system run them.
inline bool supported(vectors v) noexcept {
#if defined(__x86_64__)
  switch (v) {
    case vectors::avx512:
      return __builtin_cpu_supports("avx512f") != 0;
    case vectors::avx2:
      return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
             __builtin_cpu_supports("f16c") != 0;
    case vectors::none:
      break;
  }
#endif
  return v == vectors::none;
}

/// The widest supported ones; asked once.
inline vectors widest_vectors() noexcept {
  static vectors const widest = supported(vectors::avx512) ? vectors::avx512
                                : supported(vectors::avx2) ? vectors::avx2
                                                           : vectors::none;
  return widest;
}

}  // namespace protrain::inline v0::optim
