// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where the fp32 masters of a range of elements lie, one type per state format, so that every loop
// over elements is written once.

#include "protrain/core/arithmetic.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/core/config.hpp"
#include "protrain/core/float16.hpp"
#include "protrain/core/strict_math.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::optim {

/// Reads and writes the master of element i, and the working value with it. Laws
/// (test/law/master_arrays.hpp): what was stored loads with the same bits, but for a NaN's; no other
/// element changes. `value_alone` of 16 bits rounds: frozen tensors have no master.
template <class M>
concept master_arrays = requires(M const& m, std::size_t i, float x) {
  { m.load(i) } noexcept -> std::same_as<float>;
  { m.store(i, x) } noexcept -> std::same_as<void>;
};

/// State format `fp32`: the value is its own master.
struct whole_master {
  float* value = nullptr;

  PROTRAIN_HD float load(std::size_t i) const noexcept { return value[i]; }
  PROTRAIN_HD void store(std::size_t i, float x) const noexcept { value[i] = x; }
};
static_assert(master_arrays<whole_master>);

/// State format `split_master`: `hi` is the working bf16 value, `lo` the rest of the master.
struct split_halves {
  bfloat16* hi = nullptr;
  std::int16_t* lo = nullptr;

  PROTRAIN_HD float load(std::size_t i) const noexcept { return merge_master(hi[i], lo[i]); }
  PROTRAIN_HD void store(std::size_t i, float x) const noexcept {
    split_value const halves = split_master(x);
    hi[i] = halves.hi;
    lo[i] = halves.lo;
  }
};
static_assert(master_arrays<split_halves>);

/// State format `separate_master` with bf16 or fp16 values, which are written and never read.
template <stored_float T>
  requires(!std::same_as<T, float>)
struct master_beside {
  float* master = nullptr;
  T* value = nullptr;

  PROTRAIN_HD float load(std::size_t i) const noexcept { return master[i]; }
  PROTRAIN_HD void store(std::size_t i, float x) const noexcept {
    master[i] = x;
    value[i] = narrow<T>(x);
  }
};
static_assert(master_arrays<master_beside<bfloat16>> && master_arrays<master_beside<float16>>);

/// A frozen tensor: its value is all there is, so what is stored is rounded.
template <stored_float T>
struct value_alone {
  T* value = nullptr;

  PROTRAIN_HD float load(std::size_t i) const noexcept { return widen(value[i]); }
  PROTRAIN_HD void store(std::size_t i, float x) const noexcept { value[i] = narrow<T>(x); }
};
static_assert(master_arrays<value_alone<float>> && master_arrays<value_alone<bfloat16>>);

/// The same masters from element `n` on.
constexpr whole_master advanced(whole_master const& m, std::size_t n) noexcept {
  return {m.value + n};
}
constexpr split_halves advanced(split_halves const& m, std::size_t n) noexcept {
  return {m.hi + n, m.lo + n};
}
template <stored_float T>
constexpr master_beside<T> advanced(master_beside<T> const& m, std::size_t n) noexcept {
  return {m.master + n, m.value + n};
}

}  // namespace protrain::inline v0::optim
