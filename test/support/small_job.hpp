// SPDX-License-Identifier: Apache-2.0
#pragma once
// A regular job of a few blocks that constant evaluation can afford, and knobs for it.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>

namespace protrain::test {

/// `blocks` blocks of two tensors of 256 elements, activations in every place.
constexpr trace::trace small_trace(std::size_t blocks) {
  trace::trace t{};
  t.batch = {512};
  for (std::size_t b = 0; b < blocks; ++b) {
    bool const first = b == 0;
    bool const last = b + 1 == blocks;
    t.shapes.push_back({.name = "block",
                        .forward = {10},
                        .backward = {20},
                        .input = {first ? 0U : 1024U},
                        .output = {last ? 0U : 1024U},
                        .saved = {4096},
                        .scratch_forward = {1024},
                        .scratch_backward = {2048}});
    t.blocks.push_back(make_id<shape_id>(b));
    for (char const* const name : {"weight", "bias"}) {
      model::parameter p{.name = name, .shape = {16, 16}};
      p.uses.push_back(make_id<block_id>(b));
      t.parameters.push_back(p);
    }
  }
  return t;
}

/// One chunk per block.
constexpr chunk::layout small_layout(trace::trace const& t) {
  return chunk::make_layout(t, std::uint64_t{2} * 256);
}

/// The first `persistent` chunks stay; strategies keep, checkpoint, swap in turn.
constexpr schedule::knobs small_knobs(chunk::layout const& l,
                                      std::size_t blocks,
                                      std::size_t persistent) {
  schedule::knobs k{};
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    k.persistent.push_back(c < persistent ? 1 : 0);
    k.sites.push_back(c < persistent ? update::site::gpu : update::site::cpu);
  }
  for (std::size_t b = 0; b < blocks; ++b) {
    k.strategies.push_back(static_cast<activation::strategy>(b % 3));
  }
  k.buffers = schedule::fewest_buffers(l, k.persistent);
  return k;
}

}  // namespace protrain::test
