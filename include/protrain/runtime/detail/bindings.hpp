// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs speak of allocations, blocks of tensors: the addresses behind each instruction,
// resolved once, so that a step looks nothing up and allocates nothing.

#include "protrain/block/entry.hpp"
#include "protrain/block/frame.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/device/device.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/update/state_format.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Where the arenas start, by space.
using bases = std::array<std::byte*, space_count>;

/// The tensors of one forward, recompute, rebuild or backward.
struct pass_binding {
  block::tensor_view x{};
  block::tensor_view y{};
  block::tensor_view dx{};
  block::tensor_view dy{};
  block::region saved{};
  block::region dropped{};
  block::region scratch{};
  std::vector<void*> values{};
  std::vector<void*> gradients{};
  std::vector<void*> batch{};
  float* losses = nullptr;
};

/// Addresses for one program on one rank's pair of arenas.
class bindings {
 public:
  bindings() = default;
  bindings(schedule::program const& p,
           chunk::layout const& l,
           block::table const& model,
           update::state_bytes const& bytes,
           bases const& base,
           std::uint64_t rank = 0)
      : base_(base), rank_(rank), pass_of_(p.instructions.size(), none) {
    for (std::size_t i = 0; i < p.instructions.size(); ++i) {
      schedule::instruction const& at = p.instructions[i];
      first_touched_.push_back(touched_.size());
      for (schedule::operand const& o : p.operands_of(at)) {
        touch(p, at, o);
      }
      if (at.op == schedule::opcode::forward || at.op == schedule::opcode::recompute ||
          at.op == schedule::opcode::rebuild || at.op == schedule::opcode::backward) {
        pass_of_[i] = passes_.size();
        passes_.push_back(bind(p, at, l, model, bytes));
      }
    }
    first_touched_.push_back(touched_.size());
    begin(p, p.before);
  }

  /// Before the program runs: `before` micro-batches of the step are done.
  void begin(schedule::program const& p, std::uint64_t before) {
    before_ = before;
    for (auto const& [at, operand] : advancing_) {
      schedule::operand const& o = p.operands[operand];
      touched_[at].offset = p.allocations[o.allocation.index()].offset + o.offset_on(rank_, before);
    }
  }
  /// Micro-batches of the step that are done.
  std::uint64_t before() const noexcept { return before_; }

  std::byte* address(schedule::program const& p, schedule::operand const& o) const {
    schedule::allocation const& a = p.allocations[o.allocation.index()];
    return base_[static_cast<std::size_t>(a.where)] + a.offset + o.offset_on(rank_, before_);
  }
  std::span<device::touched const> touched_by(std::size_t instruction) const {
    return std::span(touched_).subspan(
        first_touched_[instruction], first_touched_[instruction + 1] - first_touched_[instruction]);
  }
  pass_binding const& pass(std::size_t instruction) const { return passes_[pass_of_[instruction]]; }

 private:
  /// What the operand's bytes are to the device. A gather reads this rank's part and writes the
  /// others'.
  void touch(schedule::program const& p,
             schedule::instruction const& at,
             schedule::operand const& o) {
    schedule::allocation const& a = p.allocations[o.allocation.index()];
    std::uint64_t const begin = a.offset + o.offset_on(rank_);
    auto const add = [&](std::uint64_t from, std::uint64_t to, bool write, bool read) {
      if (from < to) {
        touched_.push_back(
            {.where = a.where, .offset = from, .bytes = to - from, .write = write, .read = read});
      }
    };
    if (at.op == schedule::opcode::gather || at.op == schedule::opcode::loss_exchange) {
      std::uint64_t const share = o.bytes / p.ranks;
      std::uint64_t const own = begin + rank_ * share;
      add(begin, own, true, false);
      add(own, own + share, false, true);
      add(own + share, begin + o.bytes, true, false);
    } else {
      if (o.advance > 0) {
        advancing_.emplace_back(touched_.size(), static_cast<std::size_t>(&o - p.operands.data()));
      }
      add(begin, begin + o.bytes, schedule::writes(o.mode), schedule::reads(o.mode));
    }
  }

  static constexpr std::size_t none = ~std::size_t{0};

  /// Addresses of the block's parameters inside the slot that `o` names.
  static void bind_chunk(schedule::operand const& o,
                         std::byte* slot,
                         chunk::layout const& l,
                         block::block_entry const& entry,
                         std::uint64_t element_bytes,
                         std::vector<void*>& into) {
    for (std::size_t k = 0; k < entry.parameters.size(); ++k) {
      chunk::location const& where = l.where[entry.parameters[k].id.index()];
      if (where.owner == o.chunk && entry.parameters[k].facts.bytes() > 0) {
        into[k] = slot + where.offset * element_bytes;
      }
    }
  }

  static void bind_batch(std::byte* data, block::table const& model, std::vector<void*>& into) {
    for (std::size_t k = 0; k < model.batch.size(); ++k) {
      into[k] = data;
      data += granules(model.batch[k].facts.bytes());
    }
  }

  pass_binding bind(schedule::program const& p,
                    schedule::instruction const& at,
                    chunk::layout const& l,
                    block::table const& model,
                    update::state_bytes const& bytes) const {
    block::block_entry const& entry = model.blocks[at.block.index()];
    pass_binding out;
    out.values.assign(entry.parameters.size(), nullptr);
    out.gradients.assign(entry.parameters.size(), nullptr);
    out.batch.assign(model.batch.size(), nullptr);
    for (schedule::operand const& o : p.operands_of(at)) {
      std::byte* const data = address(p, o);
      switch (o.what) {
        case schedule::role::value:
          bind_chunk(o, data, l, entry, bytes.value, out.values);
          break;
        case schedule::role::gradient:
          bind_chunk(o, data, l, entry, bytes.gradient, out.gradients);
          break;
        case schedule::role::input:
          out.x = entry.input.at(data);
          break;
        case schedule::role::output:
          out.y = entry.output.at(data);
          break;
        case schedule::role::input_gradient:
          out.dx = entry.input.at(data);
          break;
        case schedule::role::output_gradient:
          out.dy = entry.output.at(data);
          break;
        case schedule::role::saved:
          out.saved = {data, o.bytes};
          break;
        case schedule::role::rebuilt:
          out.dropped = {data, o.bytes};
          break;
        case schedule::role::scratch:
          out.scratch = {data, o.bytes};
          break;
        case schedule::role::batch:
          bind_batch(data, model, out.batch);
          break;
        case schedule::role::loss:
          out.losses = reinterpret_cast<float*>(data);
          break;
        default:
          PROTRAIN_EXPECT(false, "a pass has no operand of that role");
      }
    }
    return out;
  }

  bases base_{};
  std::uint64_t rank_ = 0;
  std::uint64_t before_ = 0;
  std::vector<device::touched> touched_{};
  std::vector<std::pair<std::size_t, std::size_t>> advancing_{};  ///< position in it; operand
  std::vector<std::size_t> first_touched_{};
  std::vector<std::size_t> pass_of_{};
  std::vector<pass_binding> passes_{};
};

}  // namespace protrain::inline v0::runtime::detail
