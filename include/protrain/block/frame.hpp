// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the owner of memory hands to one pass over one block. Blocks see it through `scope`.

#include "protrain/block/entry.hpp"
#include "protrain/block/saved.hpp"
#include "protrain/core/philox.hpp"
#include "protrain/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace protrain::inline v0::block {

/// Which pass runs: a block's forward is called in the first three, then its rebuild, its backward.
enum class pass : std::uint8_t { forward, recompute, evaluate, rebuild, backward };

/// Memory that a scope hands out from, in granules. `data` is a multiple of `address_granule`.
struct region {
  std::byte* data = nullptr;
  std::uint64_t bytes = 0;
};

class guards;

/// Hears of each operator scope as it is entered and left, on the thread that runs the block.
struct observer {
  void* context = nullptr;
  void (*enter)(void* context, std::string_view name, device::queue_ref queue) = nullptr;
  /// `scratch` is the most that was alive inside, beyond what was alive before.
  void (*leave)(void* context,
                std::string_view name,
                device::queue_ref queue,
                std::uint64_t scratch) noexcept = nullptr;
};

/// Everything is borrowed until the pass returns; plain pointers, so that filling one in costs
/// nothing. A dry frame has no memory: regions are unbounded, tensors absent, kernels not run.
struct frame {
  block_entry const* entry = nullptr;
  block::pass pass = block::pass::forward;
  bool dry = false;
  tensor_view x{};                     ///< as passed to the block, for saves that alias it
  std::span<void* const> values{};     ///< by position in entry->parameters
  std::span<void* const> gradients{};  ///< likewise, in backward; null where frozen
  std::span<void* const> batch{};      ///< by position in table::batch
  std::uint32_t level = 0;  ///< at which the block saves, in all but recompute and evaluate
  region saved{};           ///< what the level keeps
  region dropped{};         ///< what it drops: in forward, and from the rebuild on
  region scratch{};
  saved_table* slots = nullptr;  ///< of this block and micro-batch
  float* losses = nullptr;       ///< one per sample of the micro-batch; not in recompute
  float loss_scale = 1;          ///< what the head multiplies its gradient by
  std::uint64_t samples = 0;     ///< of this micro-batch
  random_key random{};           ///< seed, attempted step, first global sample, block
  device::queue_ref queue{};
  observer const* watch = nullptr;
  std::uint64_t guard = 0;          ///< bytes behind each saved and scratch tensor
  block::guards* guards = nullptr;  ///< of a debugging job; not in a dry frame
};

}  // namespace protrain::inline v0::block
