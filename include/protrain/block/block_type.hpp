// SPDX-License-Identifier: Apache-2.0
#pragma once
// The concept of a block, and blocks made of three functions.

#include "protrain/activation/strategy.hpp"
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

/// A block that makes again what a save level dropped, with the bits that forward left, from what
/// the level kept, x if the level says that it reads it, parameters, batch tensors and random keys.
/// A block that declares levels has to be one.
template <class B>
concept rebuilds =
    block_type<B> && requires(B const& c, scope& s, tensor_view x) { c.rebuild(s, x); };

namespace detail {

/// A member of that name which isn't one, and would never be called.
template <class B>
inline constexpr bool has_wrong_rebuild = requires { &B::rebuild; } && !rebuilds<B>;

}  // namespace detail

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

struct no_rebuild {};

}  // namespace detail

/// A block made of three functions, for trainers with hand-written loops: `describe(builder)`,
/// `forward(scope, x, y)`, `backward(scope, x, dy, dx)`; of four where it has save levels:
/// `rebuild(scope, x)`. Each may take the layer within a repeat before these, for kernels that want
/// it: `forward(layer, scope, x, y)`. A handle is a position, `parameter_ref{2}`; a level counts
/// from 1, `level_ref{1}`.
template <class Describe, class Forward, class Backward, class Rebuild = detail::no_rebuild>
class function_block {
 public:
  // Other names than the members': they would shadow them.
  function_block(Describe on_describe,
                 Forward on_forward,
                 Backward on_backward,
                 Rebuild on_rebuild = {})
      : describe_(std::move(on_describe)),
        forward_(std::move(on_forward)),
        backward_(std::move(on_backward)),
        rebuild_(std::move(on_rebuild)) {}

  void describe(block_builder& b) const { detail::call(describe_, b); }
  void forward(scope& s, tensor_view x, tensor_view y) const { detail::call(forward_, s, x, y); }
  void backward(scope& s, tensor_view x, tensor_view dy, tensor_view dx) const {
    detail::call(backward_, s, x, dy, dx);
  }
  void rebuild(scope& s, tensor_view x) const
    requires(!std::same_as<Rebuild, detail::no_rebuild>)
  {
    detail::call(rebuild_, s, x);
  }

 private:
  Describe describe_;
  Forward forward_;
  Backward backward_;
  [[no_unique_address]] Rebuild rebuild_;
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
  return function_block<Describe, Forward, Backward>(
      std::move(describe), std::move(forward), std::move(backward));
}
/// With save levels, which `describe` declares.
template <class Describe, class Forward, class Backward, class Rebuild>
  requires detail::callable<Describe, block_builder&> &&
           detail::callable<Forward, scope&, tensor_view, tensor_view> &&
           detail::callable<Backward, scope&, tensor_view, tensor_view, tensor_view> &&
           detail::callable<Rebuild, scope&, tensor_view>
auto make_block(Describe describe, Forward forward, Backward backward, Rebuild rebuild) {
  return function_block<Describe, Forward, Backward, Rebuild>(
      std::move(describe), std::move(forward), std::move(backward), std::move(rebuild));
}

/// A block whose strategy is pinned where it is used, for one whose type has no name that
/// activation::strategy_of could be specialised for.
template <trace::pin Pin, block_type Block>
struct pinned : Block {
  explicit pinned(Block block) : Block(std::move(block)) {}
};

/// `pinned_to<trace::pin::checkpoint>(make_block(..))`: every layer of it is checkpointed.
template <trace::pin Pin, block_type Block>
  requires(Pin != trace::pin::free)
pinned<Pin, Block> pinned_to(Block block) {
  return pinned<Pin, Block>(std::move(block));
}

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::block_type;
using block::make_block;
using block::pinned_to;
using block::repeat;
}  // namespace protrain::inline v0

template <protrain::trace::pin Pin, protrain::block::block_type Block>
struct protrain::activation::strategy_of<protrain::block::pinned<Pin, Block>> {
  static constexpr protrain::trace::pin value = Pin;
};
