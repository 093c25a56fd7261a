// SPDX-License-Identifier: Apache-2.0
#pragma once
// A block's parameters as a trainer's own struct of pointers, for kernels that take one.

#include "protrain/block/scope.hpp"
#include "protrain/block/tensor_view.hpp"

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::block {

namespace detail {

template <class Pointers, class Get>
Pointers pointers(Get const& get) {
  static_assert(std::is_trivially_copyable_v<Pointers> && sizeof(Pointers) % sizeof(void*) == 0,
                "values_as and gradients_as fill a struct of nothing but pointers, or a pointer");
  std::array<void*, sizeof(Pointers) / sizeof(void*)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) {
    all[i] = get(parameter_ref{static_cast<std::uint32_t>(i)}).data;
  }
  return std::bit_cast<Pointers>(all);
}

}  // namespace detail

/// The values of the block's parameters, one pointer each in the order of their declaration.
/// `Pointers` is a pointer or a struct of pointers to what the parameters hold, which nobody checks;
/// it may have fewer than there are parameters.
template <class Pointers>
Pointers values_as(scope const& s) {
  return detail::pointers<Pointers>([&](parameter_ref p) { return s.value(p); });
}

/// Likewise their gradients, in backward; null where frozen.
template <class Pointers>
Pointers gradients_as(scope const& s) {
  return detail::pointers<Pointers>([&](parameter_ref p) { return s.gradient(p); });
}

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::gradients_as;
using block::values_as;
}  // namespace protrain::inline v0
