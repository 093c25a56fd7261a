// SPDX-License-Identifier: Apache-2.0
#pragma once
// Kernels announce their operators one by one; here each becomes an operator scope of a block.

#include "examples/transformer/gpt2_block_types.hpp"
#include "protrain/block/scope.hpp"

#include <optional>
#include <span>
#include <string_view>

namespace transformer {

using protrain::scope;

/// Turns a kernel's `op(name, elements)` into operator scopes: each call ends the one before.
class operators {
 public:
  explicit operators(scope& s) : scope_(s) {}

  float* operator()(std::string_view name, length elements) {
    current_.reset();
    current_.emplace(begin{scope_, name});
    return elements > 0 ? scope_.scratch(protrain::dtype::f32, {elements}).as<float>() : nullptr;
  }

 private:
  // operator_scope can't be moved: the conversion constructs it in place.
  struct begin {
    scope& owner;
    std::string_view name;
    operator protrain::operator_scope() const { return owner.op(name); }
  };
  scope& scope_;
  std::optional<protrain::operator_scope> current_;
};

/// Runs `kernels(op)`; a dry run only takes the workspaces that it would.
template <class Kernels>
void run_operators(scope& s, std::span<operator_size const> sizes, Kernels&& kernels) {
  operators op(s);
  if (s.dry()) {
    for (operator_size const& each : sizes) {
      op(each.name, each.workspace);
    }
  }
  s.run([&] { kernels(op); });
}

}  // namespace transformer
