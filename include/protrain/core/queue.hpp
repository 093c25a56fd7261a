// SPDX-License-Identifier: Apache-2.0
#pragma once
// Queues, memory spaces and memory categories: the words that programs and devices share.

#include "protrain/core/config.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::core {

/// Each queue runs its work in order; nothing is ordered between queues but by events.
enum class queue_id : std::uint8_t { compute, h2d, d2h, gather, reduce, cpu };
inline constexpr std::size_t queue_count = 6;

constexpr std::string_view name_of(queue_id q) noexcept {
  constexpr std::array<std::string_view, queue_count> names{
      "compute", "h2d", "d2h", "gather", "reduce", "cpu"};
  return names[static_cast<std::size_t>(q)];
}

/// Device memory, or pinned host memory.
enum class space : std::uint8_t { device, host };
inline constexpr std::size_t space_count = 2;

constexpr std::string_view name_of(space s) noexcept {
  return s == space::device ? "device" : "host";
}

/// What a byte is used for. `padding` and `fragmentation` are never allocated: reports derive them.
enum class category : std::uint8_t {
  parameters,         ///< persistent values; on the host, values of offloaded chunks
  parameter_buffers,  ///< slots that offloaded chunks are uploaded into
  gradients,          ///< contribution slots, accumulators, stores
  optimizer,          ///< state beside the value
  activations,        ///< saved tensors
  boundaries,         ///< tensors between blocks and their gradients
  scratch,
  batch,    ///< batch tensors and losses
  staging,  ///< cells of the norm and of step scalars, collectives' staging
  swapped,  ///< saved tensors on the host
  padding,
  fragmentation,
};
inline constexpr std::size_t category_count = 12;

constexpr std::string_view name_of(category c) noexcept {
  constexpr std::array<std::string_view, category_count> names{"parameters",
                                                               "parameter_buffers",
                                                               "gradients",
                                                               "optimizer",
                                                               "activations",
                                                               "boundaries",
                                                               "scratch",
                                                               "batch",
                                                               "staging",
                                                               "swapped",
                                                               "padding",
                                                               "fragmentation"};
  return names[static_cast<std::size_t>(c)];
}

}  // namespace protrain::inline v0::core
