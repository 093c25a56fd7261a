// SPDX-License-Identifier: Apache-2.0
// Something that is no block is refused with the three functions that it lacks.
// expect: stack: each item is a block \(describe\(block_builder&\), forward\(scope&, x, y\)
// expect: not usable in a constant expression|is not a constant expression

#include "protrain/block/stack.hpp"

namespace {

struct whole {
  void describe(protrain::block_builder&) {}
  void forward(protrain::scope& s, protrain::tensor_view, protrain::tensor_view) const {
#if FAULT_ON == 2
    char const* const computed = s.dry() ? "a" : "b";
    s.save(computed, protrain::dtype::f32, {1});
#else
    s.save("a", protrain::dtype::f32, {1});
#endif
  }
  void backward(protrain::scope&,
                protrain::tensor_view,
                protrain::tensor_view,
                protrain::tensor_view) const {}
};

struct no_backward {
  void describe(protrain::block_builder&) {}
  void forward(protrain::scope&, protrain::tensor_view, protrain::tensor_view) const {}
};

}  // namespace

int main() {
#if FAULT_ON == 1
  protrain::stack const model{whole{}, no_backward{}};
#else
  protrain::stack const model{whole{}};
#endif
  return model.entries({}).blocks.size() == 1 ? 0 : 1;
}
