// SPDX-License-Identifier: Apache-2.0
// Misuses of save levels that types can see: a rebuild that would never be called, a number in place
// of a level, and a level in place of what happens there.
// expect: a block with save levels makes again what they drop: void rebuild\(scope&, tensor_view x\)
// expect: could not convert|no matching|cannot convert|no known conversion
// expect: could not convert|no matching|cannot convert|no known conversion

#include "protrain/block/stack.hpp"

namespace {

struct leveled {
  protrain::level_ref cheap;

  void describe(protrain::block_builder& b) { cheap = b.level("cheap"); }
  void forward(protrain::scope& s, protrain::tensor_view, protrain::tensor_view) const {
#if FAULT_ON == 2
    s.save("a", protrain::dtype::f32, {1}, protrain::dropped_at{1});
#elif FAULT_ON == 3
    s.save("a", protrain::dtype::f32, {1}, cheap);
#else
    s.save("a", protrain::dtype::f32, {1}, protrain::dropped_at{cheap});
#endif
  }
#if FAULT_ON == 1
  void rebuild(protrain::scope&) const {}
#else
  void rebuild(protrain::scope& s, protrain::tensor_view) const { s.rebuild("a"); }
#endif
  void backward(protrain::scope&,
                protrain::tensor_view,
                protrain::tensor_view,
                protrain::tensor_view) const {}
};

}  // namespace

int main() {
  protrain::stack const model{leveled{}};
  return model.entries({}).blocks.size() == 1 ? 0 : 1;
}
