// SPDX-License-Identifier: Apache-2.0
#pragma once
// Element types of tensors and their sizes.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <string_view>

namespace protrain::inline v0::core {

enum class dtype : std::uint8_t { f32, bf16, f16, f64, i32, u8 };

/// Bytes of one element.
PROTRAIN_HD constexpr std::uint64_t size_of(dtype type) noexcept {
  switch (type) {
    case dtype::f64:
      return 8;
    case dtype::f32:
    case dtype::i32:
      return 4;
    case dtype::bf16:
    case dtype::f16:
      return 2;
    case dtype::u8:
      return 1;
  }
  return 0;
}

/// The name used by flags and files.
constexpr std::string_view name_of(dtype type) noexcept {
  switch (type) {
    case dtype::f64:
      return "fp64";
    case dtype::f32:
      return "fp32";
    case dtype::bf16:
      return "bf16";
    case dtype::f16:
      return "fp16";
    case dtype::i32:
      return "int32";
    case dtype::u8:
      return "uint8";
  }
  return "unknown";
}

}  // namespace protrain::inline v0::core
