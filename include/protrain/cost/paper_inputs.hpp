// SPDX-License-Identifier: Apache-2.0
#pragma once
// Fills the quantities of the paper's equations from a trace, a layout and a machine, at the rates
// of a bandwidth policy.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/result.hpp"
#include "protrain/core/units.hpp"
#include "protrain/cost/paper_job.hpp"
#include "protrain/cost/paper_plan.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/spans.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

/// The rates that a policy gives beside activation swapping.
template <link::bandwidth_policy B>
constexpr rates rates_beside_swap(hw::machine const& m, B const& policy, std::uint64_t world = 1) {
  using link::channel;
  using link::rate_beside_swap;
  hw::copy_rates const most = hw::copies_of_rank(m, world);
  return {.host_to_device =
              hw::beside(rate_beside_swap(policy, m, channel::host_to_device), most.host_to_device),
          .device_to_host =
              hw::beside(rate_beside_swap(policy, m, channel::device_to_host), most.device_to_host),
          .collective = rate_beside_swap(policy, m, channel::collective),
          .device_memory = rate_beside_swap(policy, m, channel::device_memory),
          .host_memory = hw::share_of_rank(
              m, rate_beside_swap(policy, m, channel::host_memory), hw::local_ranks(m, world)),
          .latency = m.copy_latency,
          .collective_latency = hw::collective_latency(m)};
}

namespace detail {

/// Transfers of a chunk whose shard has `elements`: shards between host and device, the whole chunk
/// between ranks. Every contribution to the gradient goes its own way.
constexpr paper_transfers transfers_of(rates const& r,
                                       model::job const& j,
                                       update::state_bytes const& b,
                                       std::uint64_t elements,
                                       std::uint64_t contributions) {
  paper_transfers out{};
  if (elements == 0) {
    return out;
  }
  std::uint64_t const value = checked_mul(elements, b.value);
  std::uint64_t const gradient = checked_mul(elements, b.gradient);
  out.gather = collective_time(r, j, checked_mul(value, j.world));
  out.upload = upload_time(r, value);
  out.reduce = collective_time(r, j, checked_mul(gradient, j.world)) * contributions;
  out.offload = download_time(r, gradient) * contributions;
  return out;
}

/// Fills a paper_job, one table after the other.
struct paper_filler {
  trace::trace const& facts;
  chunk::layout const& layout;
  update::state_bytes const& sizes;
  rates const& alone;
  rates const& beside;
  paper_job out{};

  constexpr std::uint64_t value_bytes(chunk::chunk const& c) const {
    return granules(checked_mul(c.elements, sizes.value));
  }

  /// `shards` is the step of one rank's shards. The gather of updated persistent values is not in
  /// the paper's form.
  constexpr void add_chunks(step const& shards) {
    std::vector<std::uint64_t> contributions(layout.chunks.size(), 0);
    for (span_cost const& g : shards.spans) {
      ++contributions[g.chunk.index()];
    }
    for (std::size_t c = 0; c < layout.chunks.size(); ++c) {
      chunk::chunk const& full = layout.chunks[c];
      chunk_cost const& shard = shards.chunks[c];
      std::uint64_t const elements = full.elements / facts.job.world;
      paper_chunk next{
          .alone = transfers_of(alone, facts.job, sizes, elements, contributions[c]),
          .beside_swap = transfers_of(beside, facts.job, sizes, elements, contributions[c]),
          .gpu_optimizer = shard.norm_device + shard.update_device,
          .cpu_optimizer = shard.norm_host + shard.update_host};
      next.persistent = bytes{value_bytes(full)} + bytes{shard.states};
      next.own_slot = {full.oversize ? value_bytes(full) : 0};
      out.buffer = std::max(out.buffer, bytes{full.oversize ? 0 : value_bytes(full)});
      out.chunks.push_back(next);
    }
  }

  /// A block computes when the last of its chunks is there, and not before the block ahead of it.
  constexpr void add_blocks() {
    std::uint32_t home = 0;
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      trace::block_shape const& shape = facts.shape(make_id<block_id>(b));
      home = layout.chunks_of[b].empty() ? home : std::max(home, layout.chunks_of[b].back().value);
      std::uint64_t const saved = granules(shape.saved.value);
      bool const borrows = b > 0 && !shape.reads_input;  // x, only if checkpointed
      std::uint64_t const input = borrows ? granules(shape.input.value) : 0;
      paper_block next{.chunk = home,
                       .pinned = shape.pinned,
                       .forward = shape.forward,
                       .backward = shape.backward,
                       .swap_saving = {saved},
                       .checkpoint_saving = {saved - std::min(saved, input)}};
      if (saved > 0) {
        next.swap_out = download_time(alone, shape.saved.value);
        next.swap_in = upload_time(alone, shape.saved.value);
      }
      out.chunks[home].forward += shape.forward;
      out.chunks[home].backward += shape.backward;
      out.blocks.push_back(next);
    }
  }

  /// One operator per block, since a trace knows a block's bytes. dx appears before it; dy and x go
  /// when it is done.
  constexpr void add_operators() {
    for (std::size_t b = facts.blocks.size(); b-- > 0;) {
      trace::block_shape const& shape = facts.shape(make_id<block_id>(b));
      bool const last = b + 1 == facts.blocks.size();
      std::uint64_t const dx = b > 0 ? granules(shape.input.value) : 0;
      std::uint64_t const dy =
          last ? 0 : granules(facts.shape(make_id<block_id>(b + 1)).input.value);
      std::uint64_t const x = shape.reads_input ? dx : 0;
      auto const signed_bytes = [](std::uint64_t n) { return static_cast<memory_delta>(n); };
      out.operators.push_back({.block = static_cast<std::uint32_t>(b),
                               .current_prior = signed_bytes(dx),
                               .peak_prior = signed_bytes(dx),
                               .current_own = -signed_bytes(checked_add(dy, x)),
                               .peak_own = signed_bytes(granules(shape.scratch_backward.value)),
                               .activations = {granules(shape.saved.value)}});
    }
  }

  /// What else is there when forward ends: batches, boundaries that backward reads, two gradient
  /// slots.
  constexpr void add_forward_end() {
    std::uint64_t const at_once =
        schedule::cut_step(facts.job.accumulate, schedule::default_unroll).first;
    std::uint64_t const batches = std::min<std::uint64_t>(2, at_once);
    std::uint64_t const losses = granules(checked_mul(facts.job.micro_batch, 4));
    std::uint64_t sum = checked_add(checked_mul(granules(facts.batch.value), batches),
                                    checked_mul(losses, at_once));
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      trace::block_shape const& shape = facts.shape(make_id<block_id>(b));
      sum = checked_add(sum, b > 0 && shape.reads_input ? granules(shape.input.value) : 0);
    }
    sum = checked_add(sum,
                      granules(facts.shape(make_id<block_id>(out.blocks.size() - 1)).output.value));
    std::uint64_t slot = 0;
    for (chunk::chunk const& c : layout.chunks) {
      slot = std::max(slot, c.trainable ? checked_mul(c.elements, sizes.gradient) : 0);
    }
    out.forward_end = {checked_add(sum, checked_mul(granules(slot), 2))};
  }

  /// One buffer more than a block needs, so that the next chunk can come.
  constexpr void add_buffers() {
    for (std::size_t n = 0; n <= layout.chunks.size(); ++n) {
      std::vector<std::uint8_t> persistent(layout.chunks.size(), 0);
      std::fill_n(persistent.begin(), n, std::uint8_t{1});
      std::uint32_t const most = schedule::most_buffers(layout, persistent);
      std::uint32_t const fewest = schedule::fewest_buffers(layout, persistent);
      out.buffers.push_back({.fewest = std::min(fewest + 1, most), .most = most});
    }
  }

  /// Of the shape that most free blocks have.
  constexpr void choose_interval() {
    std::vector<std::uint32_t> count(facts.shapes.size(), 0);
    std::size_t body = facts.blocks.size();
    for (std::size_t b = 0; b < facts.blocks.size(); ++b) {
      bool const free = out.blocks[b].pinned == trace::pin::free;
      std::uint32_t& mine = count[facts.blocks[b].index()];
      mine += free ? 1U : 0U;
      bool const more = body == facts.blocks.size() || mine > count[facts.blocks[body].index()];
      body = free && more ? b : body;
    }
    if (body < facts.blocks.size()) {
      out.interval = swap_interval(out.blocks[body].swap_out,
                                   out.blocks[body].forward,
                                   static_cast<std::uint32_t>(out.blocks.size()));
    }
  }
};

/// The step of one rank, as if its shards were all there is.
constexpr result<step> step_of_shards(trace::trace t,
                                      chunk::layout l,
                                      update::timing time,
                                      rates const& r) {
  for (chunk::chunk& c : l.chunks) {
    c.elements /= t.job.world;
  }
  t.job.world = 1;
  return make_step(t, l, time, r);
}

}  // namespace detail

/// The closed form's facts of a job with a layout (of at least one chunk) on a machine, for updates
/// at `time`. Transfers take the policy's rates; those beside swapping the rates that
/// `link::rate_beside_swap` gives. As in the paper, the first chunks are the persistent ones, a tied
/// tensor's later uses find its chunk resident, and every update belongs to its step, also one that
/// may be left to the next. O(chunks x blocks).
template <link::bandwidth_policy B = link::fixed>
constexpr result<paper_job> make_paper_job(trace::trace const& t,
                                           chunk::layout const& l,
                                           hw::machine const& m,
                                           update::timing time,
                                           B const& policy = {}) {
  auto const sizes = update::bytes_of(t.job);
  if (!sizes) {
    return sizes.failure();
  }
  if (t.blocks.empty() || l.chunks.empty() || t.job.accumulate == 0 || t.job.world == 0) {
    return error{errc::invalid_argument, "a job needs a block, a chunk, a micro-batch, a rank", 0};
  }
  rates const alone = rates_of(m, policy, t.job.world);
  rates const beside = rates_beside_swap(m, policy, t.job.world);
  auto const shards = detail::step_of_shards(t, l, time, alone);
  if (!shards) {
    return shards.failure();
  }
  detail::paper_filler fill{t, l, *sizes, alone, beside};
  fill.out.micro_batches = static_cast<std::uint32_t>(t.job.accumulate);
  fill.out.waits = shards->waits;
  fill.add_chunks(*shards);
  fill.add_blocks();
  fill.add_operators();
  fill.add_forward_end();
  fill.add_buffers();
  fill.choose_interval();
  return std::move(fill.out);
}

}  // namespace protrain::inline v0::cost
