// SPDX-License-Identifier: Apache-2.0
#pragma once
// The axes along which plans and jobs are drawn, and what a drawn row means.

#include "examples/transformer/gpt2.hpp"
#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/cost/benefit.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/update/timing.hpp"
#include "test/support/any_policy.hpp"
#include "test/support/differential.hpp"
#include "test/support/mlp.hpp"
#include "test/support/pairwise.hpp"
#include "test/support/synthetic.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::test {

enum class model_kind : std::uint8_t { synthetic, mlp, gpt2 };
enum class device_kind : std::uint8_t { in_order, random, adversarial, host };
enum class time_kind : std::uint8_t { after_backward, during_backward, defer_one, defer_all };

/// Positions in `choice_row`.
enum class on : std::uint8_t {
  model,
  type,
  accumulate,
  clip,
  dropout,
  device,
  capacity,
  persist,
  buffers,
  swap,
  checkpoint,
  levels,
  assignment,
  interval,
  swap_ahead,
  gradient_slots,
  time,
  programs,
  placement,
  eviction,
  sites,
};
inline std::uint32_t at(choice_row const& row, on axis) {
  return row[static_cast<std::size_t>(axis)];
}

/// Every axis, in the order of `on`. Updates during backward need a job without clipping;
/// `swap_first` knows no interval.
inline covering_array plan_space() {
  auto const first = [](on axis, std::uint32_t value) {
    return setting{static_cast<std::size_t>(axis), value};
  };
  return {{{"model", {"synthetic", "mlp", "gpt2"}},
           {"dtype", {"fp32", "bf16"}},
           {"accumulate", {"1", "3"}},
           {"clip", {"off", "on"}},
           {"dropout", {"off", "on"}},
           {"device", {"in order", "random", "adversarial", "host"}},
           {"chunk", {"small", "best of the grid", "large"}},
           {"persist", {"0", "some", "all"}},
           {"buffers", {"fewest", "one more", "most"}},
           {"swap", {"0", "1", "all"}},
           {"checkpoint", {"0", "some", "all"}},
           {"levels", {"0", "first", "deepest", "mixed"}},
           {"assignment", {"interleaved", "swap first"}},
           {"interval", {"1", "2", "3"}},
           {"swap ahead", {"1", "2"}},
           {"gradient slots", {"2", "3"}},
           {"time", {"after backward", "during backward", "defer one", "defer all"}},
           {"micro-batches of a program", {"all", "1", "2"}},
           {"placement", {"first", "last", "by benefit"}},
           {"eviction", {"execution order", "furthest next use", "least recently used"}},
           {"update site", {"cpu", "streamed", "split"}}},
          {{first(on::clip, 1), first(on::time, 1)},
           {first(on::assignment, 1), first(on::interval, 1)},
           {first(on::assignment, 1), first(on::interval, 2)}}};
}

inline model::job job_of(choice_row const& row) {
  auto const kind = static_cast<model_kind>(at(row, on::model));
  dtype const type = at(row, on::type) == 0 ? dtype::f32 : dtype::bf16;
  float const small_norm = kind == model_kind::synthetic ? 0.5F : 0.05F;
  return {.micro_batch = 2,
          .sequence = kind == model_kind::gpt2 ? 32U : 4U,
          .accumulate = at(row, on::accumulate) == 0 ? 1U : 3U,
          .type = type,
          .state = model::default_state(type),
          .clip = at(row, on::clip) == 0 ? 0.0F : small_norm,
          .seed = 20240607,
          .dropout = at(row, on::dropout) == 0 ? 0.0F : 0.1F};
}

/// Seven blocks of hashes: a tied tensor, a frozen one, an empty one, one above most capacities.
inline trace::trace synthetic_facts(model::job const& job) {
  trace::trace t{.from = trace::source::dry_run, .job = job};
  auto const shape = [&](std::uint64_t in, std::uint64_t out, std::uint64_t saved, bool reads) {
    t.shapes.push_back({.name = "shape",
                        .input = {in},
                        .output = {out},
                        .saved = {saved * address_granule},
                        .scratch_forward = {3 * address_granule},
                        .scratch_backward = {5 * address_granule},
                        .reads_input = reads});
    add_levels(t.shapes.back(), 3, {4 * address_granule}, {}, out > 0 && !reads);
  };
  shape(0, 520, 2, false);
  shape(520, 520, 6, true);
  shape(520, 520, 3, false);
  shape(520, 0, 1, true);
  for (std::uint32_t const s : {0U, 1U, 1U, 2U, 1U, 1U, 3U}) {
    t.blocks.push_back({s});
  }
  t.batch = {2 * address_granule};
  auto const parameter = [&](std::uint32_t block, std::uint64_t n, bool trainable = true) {
    model::parameter p{.name = "p", .shape = {n}, .type = job.type, .trainable = trainable};
    p.name += std::uint64_t{t.parameters.size()};
    p.decay = n > 200;
    p.uses.push_back({block});
    t.parameters.push_back(p);
  };
  parameter(0, 3000);
  t.parameters.back().uses.push_back({6});
  for (std::uint32_t block = 1; block < 6; ++block) {
    parameter(block, 700);
    parameter(block, 130);
    parameter(block, block == 3 ? 0 : 257, block != 2);
    parameter(block, 300);
  }
  parameter(6, 64);
  return t;
}

inline model::gpt2_config tiny_gpt2() {
  return {.layers = 4,
          .hidden = 32,
          .heads = 4,
          .inner = 128,
          .vocabulary = 256,
          .positions = 32,
          .dropout = 0.1};
}

template <class T>
subject make_subject_of(model_kind kind, model::job const& job) {
  if (kind == model_kind::mlp) {
    return make_subject(make_mlp<T>({.layers = 3, .tied = true}), job, uniform_values(0.4F));
  }
  transformer::initial_values const values{.config = tiny_gpt2(), .seed = job.seed};
  return make_subject(transformer::make_gpt2<T>(tiny_gpt2()), job, values);
}

inline subject make_subject_of(choice_row const& row) {
  auto const kind = static_cast<model_kind>(at(row, on::model));
  model::job const job = job_of(row);
  if (kind == model_kind::synthetic) {
    return make_subject(synthetic_model(synthetic_facts(job)), job, uniform_values(0.5F));
  }
  return job.type == dtype::f32 ? make_subject_of<float>(kind, job)
                                : make_subject_of<bfloat16>(kind, job);
}

inline chunk::layout layout_of(choice_row const& row, trace::trace const& t) {
  std::uint64_t const base = chunk::detail::base_capacity(t);
  switch (at(row, on::capacity)) {
    case 0:
      return chunk::make_layout(t, base / 2);
    case 1:
      return chunk::make_layout(t, chunk::uniform_grid{}.capacities(t).front());
    default:
      return chunk::make_layout(t, 4 * base);
  }
}

/// What persistence brings on the machine of the examples.
inline std::vector<chunk::benefit> benefits_of(trace::trace const& t, chunk::layout const& l) {
  auto const step = cost::make_step(
      t, l, update::timing::after_backward, cost::rates_of(hw::host_demo(), link::fixed{}));
  return cost::benefits_of(*step);
}

inline any_eviction eviction_of(choice_row const& row) { return {at(row, on::eviction)}; }

/// Blocks at save level 1, 2, ...: all, or two each, at the deepest ones too.
inline std::array<std::uint32_t, trace::most_levels> level_counts(choice_row const& row) {
  std::array<std::uint32_t, trace::most_levels> out{};
  switch (at(row, on::levels)) {
    case 0:
      break;
    case 1:
      out[0] = 99;
      break;
    case 2:
      out.fill(99);
      break;
    default:
      out.fill(1);
  }
  return out;
}

inline void assign_activations(schedule::knobs& k, choice_row const& row, trace::trace const& t) {
  auto const pins = activation::pins_of(t);
  auto const free = activation::free_blocks(pins);
  std::uint32_t const swap = at(row, on::swap);
  std::uint32_t const some = std::min(free, std::max(1U, free / 2));
  std::uint32_t const checkpoint = at(row, on::checkpoint);
  // Swapping comes first: what `some` are to recompute it must leave.
  std::uint32_t const all = checkpoint == 1 ? free - some : free;
  activation::counts const c{
      .swap = swap == 2 ? all : swap,
      .checkpoint = std::array{0U, some, free}[checkpoint],
      .interval = at(row, on::assignment) == 1 ? 1 : 1 + at(row, on::interval),
      .levels = level_counts(row)};
  auto made = activation::assign(activation::levels{}, pins, activation::depths_of(t), c);
  k.strategies = at(row, on::assignment) == 1 ? activation::swap_first{}.assign(pins, c)
                                              : std::move(made.strategies);
  k.levels = std::move(made.levels);
}

inline void set_time(schedule::knobs& k, time_kind time, chunk::layout const& l) {
  switch (time) {
    case time_kind::after_backward:
      k.time = update::timing::after_backward;
      break;
    case time_kind::during_backward:
      k.time = update::timing::during_backward;
      break;
    case time_kind::defer_one:
      k.time = update::timing::before_next_use;
      k.defer = 1;
      break;
    case time_kind::defer_all:
      k.time = update::timing::before_next_use;
      k.defer = static_cast<std::uint32_t>(l.chunks.size());
      break;
  }
}

inline schedule::knobs knobs_of(choice_row const& row,
                                trace::trace const& t,
                                chunk::layout const& l) {
  auto const some = [](std::uint32_t level, std::size_t all) {
    auto const n = static_cast<std::uint32_t>(all);
    return level == 0 ? 0 : level == 1 ? std::max(1U, n / 2) : n;
  };
  schedule::knobs k{};
  k.persistent = any_placement{at(row, on::placement)}.persistent(
      l, benefits_of(t, l), some(at(row, on::persist), l.chunks.size()));
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    bool const streamed = at(row, on::sites) == 1 || (at(row, on::sites) == 2 && c % 2 == 0);
    k.sites.push_back(k.persistent[c] != 0 ? update::site::gpu
                      : streamed           ? update::site::streamed
                                           : update::site::cpu);
  }
  k.streaming_slots = 1 + at(row, on::gradient_slots) + at(row, on::swap_ahead);
  k.stream_parts =
      at(row, on::interval) == 0 ? schedule::default_stream_parts : at(row, on::interval);
  assign_activations(k, row, t);
  std::uint32_t const fewest = schedule::fewest_buffers(l, k.persistent);
  std::uint32_t const most = std::max(fewest, schedule::most_buffers(l, k.persistent));
  k.buffers = at(row, on::buffers) == 2 ? most : fewest + at(row, on::buffers);
  k.swap_ahead = 1 + at(row, on::swap_ahead);
  k.gradient_slots = 2 + at(row, on::gradient_slots);
  std::uint32_t const unroll = at(row, on::programs);
  k.unroll = unroll == 0 ? schedule::default_unroll : unroll;
  set_time(k, static_cast<time_kind>(at(row, on::time)), l);
  return k;
}

/// Everything stays, nothing is recomputed.
inline schedule::knobs keep_all(trace::trace const& t, chunk::layout const& l) {
  schedule::knobs k{};
  k.persistent = chunk::persist_first{}.persistent(l, static_cast<std::uint32_t>(l.chunks.size()));
  k.sites.assign(l.chunks.size(), update::site::gpu);
  k.strategies = activation::keep_all{}.assign(activation::pins_of(t), {});
  return k;
}

/// Nothing stays: every chunk is offloaded, each free block is swapped or recomputed in turn.
inline schedule::knobs move_all(trace::trace const& t, chunk::layout const& l) {
  schedule::knobs k{};
  k.persistent.assign(l.chunks.size(), 0);
  k.sites.assign(l.chunks.size(), update::site::cpu);
  auto const n = static_cast<std::uint32_t>(t.blocks.size());
  k.strategies = activation::interleaved{}.assign(activation::pins_of(t),
                                                  {.swap = n, .checkpoint = n, .interval = 2});
  k.buffers = schedule::fewest_buffers(l, k.persistent);
  return k;
}

}  // namespace protrain::test
