// SPDX-License-Identifier: Apache-2.0
#pragma once
// Elements of a tensor as fp64, whatever it holds: for tools, not for kernels.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/float16.hpp"

#include <cstdint>

namespace protrain::inline v0::block {

/// Element `i` of `t`, which holds a floating-point type or integers.
inline double load_element(tensor_view const& t, std::uint64_t i) {
  switch (t.type) {
    case dtype::f64:
      return t.as<double const>()[i];
    case dtype::bf16:
      return static_cast<double>(to_float(t.as<bfloat16 const>()[i]));
    case dtype::f16:
      return static_cast<double>(to_float(t.as<float16 const>()[i]));
    case dtype::i32:
      return t.as<std::int32_t const>()[i];
    case dtype::u8:
      return t.as<std::uint8_t const>()[i];
    default:
      return static_cast<double>(t.as<float const>()[i]);
  }
}

/// Rounds `value` to what `t` holds.
inline void store_element(tensor_view const& t, std::uint64_t i, double value) {
  switch (t.type) {
    case dtype::f64:
      t.as<double>()[i] = value;
      return;
    case dtype::bf16:
      t.as<bfloat16>()[i] = to_bfloat16(static_cast<float>(value));
      return;
    case dtype::f16:
      t.as<float16>()[i] = to_float16(static_cast<float>(value));
      return;
    case dtype::i32:
      t.as<std::int32_t>()[i] = static_cast<std::int32_t>(value);
      return;
    case dtype::u8:
      t.as<std::uint8_t>()[i] = static_cast<std::uint8_t>(value);
      return;
    default:
      t.as<float>()[i] = static_cast<float>(value);
  }
}

}  // namespace protrain::inline v0::block
