// SPDX-License-Identifier: Apache-2.0
#pragma once
// The jobs and axes that benches share.

#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/units.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/job.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::bench {

/// GPU memory in GiB: a consumer card, an A100, an H200.
inline constexpr std::array<std::int64_t, 3> gpu_gib{24, 80, 139};
/// Sequences in a micro-batch.
inline constexpr std::array<std::int64_t, 3> micro_batches{1, 8, 16};
/// Elements of an optimizer step: a small tensor, and far beyond any cache.
inline constexpr std::array<std::int64_t, 2> update_elements{1 << 18, 1 << 24};

/// The same on several threads: a block of a large model, beyond any cache. Arrays of a power of two
/// that lie one after the other meet in the same banks of memory.
inline constexpr std::array<std::int64_t, 2> threaded_elements{60'000'256, 1 << 26};

/// Allocations that live at once in an arena: a small model's, and a large one's.
inline constexpr std::array<std::int64_t, 2> live_allocations{64, 1024};
/// Layers of the quick start's GPT-2, and of a deeper one.
inline constexpr std::array<std::int64_t, 2> quickstart_layers{6, 24};
/// Blocks of a model that does nothing.
inline constexpr std::array<std::int64_t, 2> idle_blocks{8, 64};
/// Layers of a model that is planned: those of the 10B GPT-2, and 100 blocks with the two at the ends.
inline constexpr std::array<std::int64_t, 2> planned_layers{48, 98};
/// Micro-batches of its step: one program, or a first, two middle and a last one.
inline constexpr std::array<std::int64_t, 2> planned_micro_batches{1, 16};

/// The 10B GPT-2 of the ProTrain paper: 48 blocks of hidden size 4096.
inline model::gpt2_config gpt2_10b() {
  return {.layers = 48, .hidden = 4096, .heads = 32, .inner = 16'384, .vocabulary = 50'304};
}

/// The model of the quick start.
inline model::gpt2_config gpt2_quickstart() {
  return {
      .layers = 6, .hidden = 128, .heads = 4, .inner = 512, .vocabulary = 256, .positions = 128};
}

namespace detail {

inline void add_parameter(trace::trace& t,
                          char const* name,
                          std::vector<std::uint64_t> shape,
                          std::vector<block_id> uses) {
  t.parameters.push_back(
      {.name = name, .shape = std::move(shape), .type = t.job.type, .uses = std::move(uses)});
}

inline void add_parameters(trace::trace& t, model::gpt2_config const& c) {
  auto const head = make_id<block_id>(c.layers + 1);
  add_parameter(t, "wte", {c.vocabulary, c.hidden}, {block_id{0}, head});
  add_parameter(t, "wpe", {c.positions, c.hidden}, {block_id{0}});
  for (std::size_t b = 1; b <= c.layers; ++b) {
    auto const id = make_id<block_id>(b);
    add_parameter(t, "qkv", {3 * c.hidden, c.hidden}, {id});
    add_parameter(t, "projection", {c.hidden, c.hidden}, {id});
    add_parameter(t, "up", {c.inner, c.hidden}, {id});
    add_parameter(t, "down", {c.hidden, c.inner}, {id});
    add_parameter(t, "vectors", {9 * c.hidden + c.inner}, {id});
  }
  add_parameter(t, "ln_f", {2 * c.hidden}, {head});
}

}  // namespace detail

/// A bf16 GPT-2 as a trace: products at `rate`, and fused attention's saved tensors. Good enough to
/// plan with, not to predict a machine.
inline trace::trace gpt2_trace(model::gpt2_config const& c,
                               std::uint64_t micro_batch,
                               float clip,
                               flop_rate rate) {
  trace::trace t{.job = {.micro_batch = micro_batch,
                         .sequence = c.positions,
                         .type = dtype::bf16,
                         .state = model::state_format::split_master,
                         .clip = clip}};
  std::uint64_t const tokens = micro_batch * c.positions;
  std::uint64_t const width = 2 * tokens * c.hidden;  // bytes of one activation
  std::uint64_t const weights = 4 * c.hidden * c.hidden + 2 * c.hidden * c.inner;
  std::uint64_t const body = 2 * tokens * (weights + 2 * c.positions * c.hidden);
  std::uint64_t const loss = 2 * tokens * c.vocabulary * c.hidden;
  t.shapes.push_back({.name = "embedding",
                      .forward = {100'000'000},
                      .backward = {100'000'000},
                      .output = {width},
                      .reads_input = false});
  t.shapes.push_back({.name = "block",
                      .forward = time_of(body, rate),
                      .backward = time_of(2 * body, rate),
                      .input = {width},
                      .output = {width},
                      .saved = {17 * width},
                      .scratch_forward = {4 * width},
                      .scratch_backward = {8 * width}});
  t.shapes.push_back({.name = "head",
                      .forward = time_of(loss, rate),
                      .backward = time_of(2 * loss, rate),
                      .input = {width},
                      .saved = {2 * tokens * c.vocabulary},
                      .scratch_backward = {2 * tokens * c.vocabulary}});
  t.blocks.push_back(shape_id{0});
  t.blocks.insert(t.blocks.end(), c.layers, shape_id{1});
  t.blocks.push_back(shape_id{2});
  detail::add_parameters(t, c);
  t.batch = {8 * tokens};
  t.outside = {600ULL << 20U};
  return t;
}

}  // namespace protrain::bench
