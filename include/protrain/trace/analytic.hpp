// SPDX-License-Identifier: Apache-2.0
#pragma once
// A trace of a model that nobody has written, on a machine that nobody has: bytes from the operators
// of its blocks, times from a roofline.

#include "protrain/core/config.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/core/units.hpp"
#include "protrain/hw/machine.hpp"
#include "protrain/model/adapters.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/job.hpp"
#include "protrain/model/operations.hpp"
#include "protrain/model/parameter.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::trace {

/// An operator's time: that of its operations at the machine's dense rate, and that of its bytes at
/// the memory's. At intensity I (operations a byte) it so attains I / (I + ridge) of the dense rate,
/// where the ridge is that rate over the memory's: half of it at the ridge, all of it far beyond.
/// The dense rate must be positive; without the memory's, which is 0 where it isn't known, bytes take
/// no time.
constexpr picoseconds roofline(hw::machine const& m,
                               dtype type,
                               std::uint64_t flops,
                               std::uint64_t moved) {
  picoseconds const compute = time_of(flops, hw::compute_rate(m, type));
  bool const known = m.device_bandwidth.per_second > 0;
  return known ? compute + time_of(moved, m.device_bandwidth) : compute;
}

namespace detail {

constexpr save_level level_of(model::block_operations const& block,
                              model::drop level,
                              model::job const& job,
                              hw::machine const& m) {
  save_level out{.name = level == model::drop::cheap ? "cheap" : "attention", .reads_input = true};
  for (model::operation const& o : block.operators) {
    bool const dropped = o.from <= level;
    out.saved += bytes{checked_add(o.kept, dropped ? 0 : o.saved)};
    if (dropped) {
      out.rebuilt += bytes{o.saved};
      out.scratch = std::max(out.scratch, bytes{o.scratch_forward});
      out.rebuild += roofline(m, job.type, o.flops, o.moved);
    }
  }
  return out;
}

constexpr block_shape shape_of(model::block_operations const& block,
                               model::job const& job,
                               hw::machine const& m) {
  block_shape out{.name = block.name,
                  .input = {block.input},
                  .output = {block.output},
                  .reads_input = block.input > 0};
  for (model::operation const& o : block.operators) {
    operator_facts facts{.name = o.name,
                         .forward = roofline(m, job.type, o.flops, o.moved),
                         .backward = roofline(m,
                                              job.type,
                                              checked_add(o.backward_flops, o.weight_flops),
                                              checked_add(o.backward_moved, o.weight_moved)),
                         .scratch_peak = {std::max(o.scratch_forward, o.scratch_backward)},
                         .saved = {checked_add(o.kept, o.saved)}};
    out.forward += facts.forward;
    out.backward += facts.backward;
    out.saved += facts.saved;
    out.scratch_forward = std::max(out.scratch_forward, bytes{o.scratch_forward});
    out.scratch_backward = std::max(out.scratch_backward, bytes{o.scratch_backward});
    out.operators.push_back(std::move(facts));
  }
  out.scratch_backward += bytes{block.scratch_backward};
  if (block.has_levels) {
    out.levels.push_back(level_of(block, model::drop::cheap, job, m));
    out.levels.push_back(level_of(block, model::drop::products, job, m));
  }
  return out;
}

/// The parameters that each block reads.
constexpr std::vector<std::vector<model::parameter const*>> rows_by_block(
    std::vector<model::parameter> const& table, std::uint64_t blocks) {
  std::vector<std::vector<model::parameter const*>> out(blocks);
  for (model::parameter const& p : table) {
    for (block_id const b : p.uses) {
      PROTRAIN_EXPECT(b.index() < blocks, "a parameter is used by a block that isn't there");
      out[b.index()].push_back(&p);
    }
  }
  return out;
}

/// Whether two blocks of one kind train the same of their parameters.
constexpr bool alike(std::vector<model::parameter const*> const& a,
                     std::vector<model::parameter const*> const& b) {
  return std::ranges::equal(a, b, [](auto const* x, auto const* y) {
    return x->trainable == y->trainable && x->shape == y->shape;
  });
}

constexpr void add_block(trace& out, block_shape shape) {
  auto const found = std::ranges::find(out.shapes, shape);
  out.blocks.push_back(make_id<shape_id>(static_cast<std::size_t>(found - out.shapes.begin())));
  if (found == out.shapes.end()) {
    out.shapes.push_back(std::move(shape));
  }
}

}  // namespace detail

/// The facts of a decoder's blocks for `job`: embedding, layers, head. Bytes are those of a good
/// implementation in the given style, times the roofline's; nothing is measured, and it says so.
/// `table` is the decoder's, of which parts may be frozen and beside which adapters may be
/// (model/adapters.hpp).
constexpr trace analytic(model::decoder_config const& c,
                         model::job const& job,
                         hw::machine const& m,
                         model::operator_style const& style,
                         std::vector<model::parameter> table) {
  trace out{.from = source::analytic, .job = job, .parameters = std::move(table)};
  auto const rows = detail::rows_by_block(out.parameters, checked_add(c.layers, 2));
  auto const add = [&](model::block_operations const& block, std::size_t at) {
    detail::add_block(out, detail::shape_of(model::fitted(block, rows[at], job), job, m));
  };
  add(model::embedding_operations(c, job), 0);
  model::block_operations const layer = model::layer_operations(c, job, style);
  for (std::size_t at = 1; at <= c.layers; ++at) {
    if (at > 1 && detail::alike(rows[at - 1], rows[at])) {
      out.blocks.push_back(out.blocks.back());
    } else {
      add(layer, at);
    }
  }
  add(model::head_operations(c, job, style), rows.size() - 1);
  std::uint64_t const tokens = checked_mul(job.micro_batch, job.sequence);
  std::uint64_t const ids = granules(checked_mul(tokens, size_of(dtype::i32)));
  out.batch = {checked_mul(2, ids)};  // tokens and targets
  return out;
}

/// As above, all of it trained.
constexpr trace analytic(model::decoder_config const& c,
                         model::job const& job,
                         hw::machine const& m,
                         model::operator_style const& style = {}) {
  return analytic(c, job, m, style, model::decoder_parameters(c, job.type));
}

}  // namespace protrain::inline v0::trace
