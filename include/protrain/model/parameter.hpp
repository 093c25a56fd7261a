// SPDX-License-Identifier: Apache-2.0
#pragma once
// The parameter table: one row per tensor, in order of first use. A tied tensor has one row and
// several uses; zero-size tensors are legal.

#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/text.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::model {

struct parameter {
  text name{};
  std::vector<std::uint64_t> shape{};
  dtype type = dtype::f32;
  bool trainable = true;
  bool decay = true;              ///< weight decay applies
  float learning_rate_scale = 1;  ///< its group's factor on the step's learning rate; not negative
  std::vector<block_id> uses{};  ///< blocks that read it, in execution order; the first one owns it

  bool operator==(parameter const&) const = default;
};

/// Elements of a tensor of `shape`; 1 for a scalar, 0 if any extent is 0. Checked.
constexpr std::uint64_t elements_of(std::vector<std::uint64_t> const& shape) {
  std::uint64_t n = 1;
  for (std::uint64_t const extent : shape) {
    n = checked_mul(n, extent);
  }
  return n;
}

constexpr std::uint64_t elements(parameter const& p) { return elements_of(p.shape); }

}  // namespace protrain::inline v0::model
