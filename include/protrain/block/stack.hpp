// SPDX-License-Identifier: Apache-2.0
#pragma once
// A model: blocks and repeats in execution order, erased into a table once.

#include "protrain/activation/strategy.hpp"
#include "protrain/block/block_type.hpp"
#include "protrain/block/detail/table_builder.hpp"
#include "protrain/model/job.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace protrain::inline v0::block {

namespace detail {

template <class T>
inline constexpr bool is_item = block_type<T>;
template <class B>
inline constexpr bool is_item<repeated<B>> = true;

template <class Block>
constexpr rebuild_function erase_rebuild() {
  static_assert(!has_wrong_rebuild<Block>,
                "a block with save levels makes again what they drop: void rebuild(scope&, "
                "tensor_view x) const");
  if constexpr (rebuilds<Block>) {
    return [](void const* object, scope& s, tensor_view x) {
      static_cast<Block const*>(object)->rebuild(s, x);
    };
  } else {
    return nullptr;
  }
}

template <class Block>
layered erase(Block const& block, std::string const& prefix) {
  return {.object = &block,
          .forward =
              [](void const* object, scope& s, tensor_view x, tensor_view y) {
                static_cast<Block const*>(object)->forward(s, x, y);
              },
          .backward =
              [](void const* object, scope& s, tensor_view x, tensor_view dy, tensor_view dx) {
                static_cast<Block const*>(object)->backward(s, x, dy, dx);
              },
          .rebuild = erase_rebuild<Block>(),
          .pinned = activation::strategy_of<Block>::value,
          .prefix = prefix};
}

template <class Block>
void add_layers(table_builder& into,
                model::job const& job,
                Block& block,
                std::uint32_t count,
                std::string const& prefix) {
  layered const erased = erase(std::as_const(block), prefix);
  for (std::uint32_t layer = 0; layer < count; ++layer) {
    description d{};
    block_builder builder(job, layer, d);
    block.describe(builder);
    into.add(erased, layer, d);
  }
}

template <class Block>
void add_item(table_builder& into, model::job const& job, Block& block) {
  add_layers(into, job, block, 1, "");
}
template <class Block>
void add_item(table_builder& into, model::job const& job, repeated<Block>& item) {
  add_layers(into, job, item.block, item.count, item.prefix);
}

}  // namespace detail

/// Owns its blocks, at addresses that a move of the stack doesn't change.
/// `stack model{embedding{..}, repeat(12, layer{..}), head{..}};`
template <class... Items>
class stack {
  static_assert((detail::is_item<Items> && ...),
                "stack: each item is a block (describe(block_builder&), forward(scope&, x, y) "
                "const, backward(scope&, x, dy, dx) const) or repeat(n, block)");

 public:
  explicit stack(Items... items)
      : items_(std::make_unique<std::tuple<Items...>>(std::move(items)...)) {}

  /// Has every block describe itself for `job` and returns the table; it points into this stack.
  /// Blocks store their handles meanwhile, so nothing else may use them. Throws block_error.
  table entries(model::job const& job) const {
    detail::table_builder builder{};
    std::apply([&](Items&... items) { (detail::add_item(builder, job, items), ...); }, *items_);
    return std::move(builder).finish();
  }

 private:
  std::unique_ptr<std::tuple<Items...>> items_;
};

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::stack;
}  // namespace protrain::inline v0
