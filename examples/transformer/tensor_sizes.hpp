// SPDX-License-Identifier: Apache-2.0
#pragma once
// How large a tensor or a workspace of a block is: rows of the size tables, from which a caller
// provides the memory.

#include "examples/transformer/simd.hpp"

#include <cstdint>
#include <string_view>

namespace transformer {

enum class element_kind : std::uint8_t { value, accumulator };

struct tensor_size {
  std::string_view name;
  element_kind kind;
  length elements;
};

/// Workspace of one operator, in accumulators; free again when the operator ends.
struct operator_size {
  std::string_view name;
  length workspace;
};

}  // namespace transformer
