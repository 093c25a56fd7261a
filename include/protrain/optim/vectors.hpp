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
  switch (v) {
    case vectors::none:
      return "scalar";
    case vectors::avx2:
      return "avx2";
    case vectors::avx512:
      return "avx512";
  }
  return "unknown";
}

/// Whether this processor and its operating system run them.
inline bool supported(vectors v) noexcept {
#if defined(__x86_64__)
  switch (v) {
    case vectors::avx512:
      return __builtin_cpu_supports("avx512f");
    case vectors::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("f16c");
    case vectors::none:
      break;
  }
#endif
  return v == vectors::none;
}

/// The widest supported ones; asked once.
inline vectors widest_vectors() noexcept {
  static vectors const widest = [] {
    for (vectors const v : {vectors::avx512, vectors::avx2}) {
      if (supported(v)) {
        return v;
      }
    }
    return vectors::none;
  }();
  return widest;
}

}  // namespace protrain::inline v0::optim
