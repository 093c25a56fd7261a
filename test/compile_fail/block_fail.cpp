// SPDX-License-Identifier: Apache-2.0
// What is repeated is a block, functions that make one have a block's arguments, and parameters go
// into structs of pointers.
// expect: repeat: what is repeated is a block: describe\(block_builder&\), forward
// and: make_block: the first function takes \(block_builder&\), or \(layer, block_builder&\)
// and: make_block: the second function takes \(scope&, tensor_view x, tensor_view y\)
// and: make_block: the third function takes \(scope&, tensor_view x, tensor_view dy, tensor_view dx\)
// and: values_as and gradients_as fill a struct of nothing but pointers, or a pointer

#include "protrain/block/block_type.hpp"
#include "protrain/block/pointers.hpp"

namespace {

struct lone {
  void describe(protrain::block_builder&) {}
  void forward(protrain::scope&, protrain::tensor_view, protrain::tensor_view) const {}
#if !FAULT_ON
  void backward(protrain::scope&,
                protrain::tensor_view,
                protrain::tensor_view,
                protrain::tensor_view) const {}
#endif
};

}  // namespace

struct weights {
#if FAULT_ON
  int matrix;
#else
  float* matrix;
#endif
};

void make(protrain::scope const& s) {
  using protrain::tensor_view;
  (void)protrain::values_as<weights>(s);
  (void)protrain::repeat(3, lone{});
#if FAULT_ON
  (void)protrain::make_block([](protrain::block_builder&, double) {},
                             [](protrain::scope&, tensor_view) {},
                             [](protrain::scope&, tensor_view, tensor_view) {});
#else
  (void)protrain::make_block([](protrain::block_builder&) {},
                             [](int, protrain::scope&, tensor_view, tensor_view) {},
                             [](protrain::scope&, tensor_view, tensor_view, tensor_view) {});
#endif
}
