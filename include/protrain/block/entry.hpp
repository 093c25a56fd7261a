// SPDX-License-Identifier: Apache-2.0
#pragma once
// The erased form of a model: a table of blocks, each a few facts and two function pointers.
// Whoever runs blocks is written against this, never against block types.

#include "protrain/block/tensor_view.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/model/parameter.hpp"
#include "protrain/trace/trace.hpp"

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace protrain::inline v0::block {

/// Position of a parameter among those its block declared.
struct parameter_ref {
  std::uint32_t index = 0;
  bool operator==(parameter_ref const&) const = default;
};

/// Position of a batch tensor among those its block declared.
struct batch_ref {
  std::uint32_t index = 0;
  bool operator==(batch_ref const&) const = default;
};

/// A save level among those that its block declared, from 1; none where default-constructed. The
/// deeper of two is the greater.
class level_ref {
 public:
  constexpr level_ref() = default;
  explicit constexpr level_ref(std::uint32_t level) : level_(level) {}
  constexpr std::uint32_t level() const noexcept { return level_; }
  auto operator<=>(level_ref const&) const = default;

 private:
  std::uint32_t level_ = 0;
};

/// Says of a saved tensor that it is dropped at a level and at all deeper ones.
class dropped_at {
 public:
  explicit constexpr dropped_at(level_ref first) : first_(first) {}
  constexpr level_ref first() const noexcept { return first_; }

 private:
  level_ref first_;
};

/// Element type and extents without an address.
struct tensor_facts {
  dtype type = dtype::f32;
  extents shape{0};

  constexpr std::uint64_t bytes() const { return tensor_view{nullptr, type, shape}.bytes(); }
  constexpr tensor_view at(void* data) const noexcept { return {data, type, shape}; }
  bool operator==(tensor_facts const&) const = default;
};

/// A parameter as one block uses it.
struct entry_parameter {
  std::string name{};  ///< as the block says it, without the prefix of a repeat
  parameter_id id{};   ///< row of `table::parameters`
  tensor_facts facts{};
  bool trainable = true;  ///< false: `scope::gradient` is absent
};

/// A batch tensor as one block uses it.
struct entry_batch {
  std::string name{};
  std::uint32_t index = 0;  ///< row of `table::batch`
  tensor_facts facts{};
};

using forward_function = void (*)(void const* object, scope& s, tensor_view x, tensor_view y);
using backward_function =
    void (*)(void const* object, scope& s, tensor_view x, tensor_view dy, tensor_view dx);

using rebuild_function = void (*)(void const* object, scope& s, tensor_view x);

/// A save level as its block declared it.
struct entry_level {
  std::string name{};
  bool reads_input = true;               ///< the rebuild reads x
  std::optional<std::uint64_t> flops{};  ///< of the rebuild, if the block said so
  bool operator==(entry_level const&) const = default;
};

/// One block in execution order. Blocks of equal `shape` are copies of one object with equal
/// descriptions: whatever holds for one pass of one holds for all.
struct block_entry {
  std::string name{};
  std::string shape_name{};  ///< without the layer
  std::uint32_t shape = 0;
  std::uint32_t layer = 0;  ///< within its repeat
  std::vector<entry_parameter> parameters{};
  std::vector<entry_batch> batch{};
  tensor_facts input{};   ///< x and dx; empty for the first block
  tensor_facts output{};  ///< y and dy; empty for the last block
  bool reads_input = true;
  std::optional<std::uint64_t> flops{};  ///< of forward, if the block said so
  std::vector<entry_level> levels{};     ///< level k is levels[k - 1]
  trace::pin pinned = trace::pin::free;
  void const* object = nullptr;
  forward_function forward = nullptr;
  backward_function backward = nullptr;
  rebuild_function rebuild = nullptr;  ///< null: the block has none, nor any level
};

/// A named tensor that the caller provides for every micro-batch.
struct batch_tensor {
  std::string name{};
  tensor_facts facts{};
};

/// A whole model for one job. Blocks point into the `stack` it was made from, which must outlive
/// it.
struct table {
  std::vector<block_entry> blocks{};
  std::vector<model::parameter> parameters{};  ///< in order of first use
  std::vector<batch_tensor> batch{};           ///< in order of first use
};

/// Elements of a parameter's gradient or value as a view's extents. At most four extents.
constexpr tensor_facts facts_of(model::parameter const& p) {
  PROTRAIN_EXPECT(p.shape.size() <= 4, "a tensor has at most four extents");
  tensor_facts out{.type = p.type, .shape = {}};
  for (std::uint64_t const n : p.shape) {
    out.shape.sizes[out.shape.rank++] = n;
  }
  return out;
}

}  // namespace protrain::inline v0::block
