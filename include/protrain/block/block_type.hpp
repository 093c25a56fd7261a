// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a block, and blocks made of three functions.

#include "protrain/block/builder.hpp"
#include "protrain/block/scope.hpp"

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::block {

/// A part of a model that runs as one unit: forward, and backward. Laws (test/law/block.hpp, and
/// `check_block` for yours):
/// outputs, saved tensors and gradients are a function of input bits, parameter bits, batch tensors
/// and random keys only, never of addresses, of what memory held before or of which pass it is;
/// what forward saves and takes as scratch depends on shapes only; every tensor is touched inside
/// `run` only. `describe` may store handles in the block, nothing else; it is called again and must
/// then say the same.
template <class B>
concept block_type =
    std::move_constructible<B> &&
    requires(B& b, B const& c, block_builder& describe, scope& s, tensor_view x, tensor_view y) {
      b.describe(describe);
      c.forward(s, x, y);
      c.backward(s, x, y, x);
    };

/// `count` copies of a block in a row, all run by one object; parameters are called
/// `<prefix>.<layer>.<name>`.
template <block_type Block>
struct repeated {
  std::uint32_t count = 0;
  Block block;
  std::string prefix{};
};

template <class Block>
auto repeat(std::integral auto count, Block block, std::string_view prefix = "h") {
  static_assert(block_type<Block>,
                "repeat: what is repeated is a block: describe(block_builder&), forward(scope&, x, "
                "y) const, backward(scope&, x, dy, dx) const; its law: protrain/block/check.hpp");
  PROTRAIN_EXPECT(std::in_range<std::uint32_t>(count), "a repeat has 0 to 2^32 - 1 layers");
  return repeated<Block>{static_cast<std::uint32_t>(count), std::move(block), std::string(prefix)};
}

namespace detail {

template <class F, class... Arguments>
concept callable =
    std::invocable<F const&, Arguments...> || std::invocable<F const&, std::uint32_t, Arguments...>;

/// `f(context, ...)`, or `f(layer, context, ...)` where that is what `f` takes.
template <class F, class Context, class... Views>
void call(F const& f, Context& context, Views const&... views) {
  if constexpr (std::invocable<F const&, Context&, Views const&...>) {
    f(context, views...);
  } else {
    f(context.layer(), context, views...);
  }
}

}  // namespace detail

/// A block made of three functions, for trainers with hand-written loops: `describe(builder)`,
/// `forward(scope, x, y)`, `backward(scope, x, dy, dx)`. Each may take the layer within a repeat
/// before these, for kernels that want it: `forward(layer, scope, x, y)`. A handle is a position,
/// `parameter_ref{2}`.
template <class Describe, class Forward, class Backward>
class function_block {
 public:
  // Other names than the members': they would shadow them.
  function_block(Describe on_describe, Forward on_forward, Backward on_backward)
      : describe_(std::move(on_describe)),
        forward_(std::move(on_forward)),
        backward_(std::move(on_backward)) {}

  void describe(block_builder& b) const { detail::call(describe_, b); }
  void forward(scope& s, tensor_view x, tensor_view y) const { detail::call(forward_, s, x, y); }
  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    detail::call(backward_, s, x, dy, dx);
  }

 private:
  Describe describe_;
  Forward forward_;
  Backward backward_;
};

/// See `function_block`.
template <class Describe, class Forward, class Backward>
auto make_block(Describe describe, Forward forward, Backward backward) {
  static_assert(
      detail::callable<Describe, block_builder&>,
      "make_block: the first function takes (block_builder&), or (layer, block_builder&), "
      "and is const");
  static_assert(detail::callable<Forward, scope&, tensor_view, tensor_view>,
                "make_block: the second function takes (scope&, tensor_view x, tensor_view y), or "
                "the layer before these, and is const");
  static_assert(detail::callable<Backward, scope&, tensor_view, tensor_view, tensor_view>,
                "make_block: the third function takes (scope&, tensor_view x, tensor_view dy, "
                "tensor_view dx), or the layer before these, and is const");
  return function_block(std::move(describe), std::move(forward), std::move(backward));
}

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::block_type;
using block::make_block;
using block::repeat;
}  // namespace protrain::inline v0
