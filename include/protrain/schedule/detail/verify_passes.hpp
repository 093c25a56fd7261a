// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: meaning of the instructions that run and feed blocks.

#include "protrain/schedule/detail/verify_machine.hpp"

#include <cstdint>

namespace protrain::inline v0::schedule::detail {

constexpr content value_of(chunk_id c, std::uint32_t version) {
  return {.what = holds::value, .of = c.value, .count = version};
}
constexpr content boundary_of(std::uint32_t block, std::uint32_t m) {
  return {.what = holds::boundary, .of = block, .micro_batch = m};
}
constexpr content saved_of(instruction const& i) {
  return {
      .what = holds::saved, .of = i.block.value, .micro_batch = i.micro_batch, .count = i.level};
}
constexpr content rebuilt_of(instruction const& i) {
  content out = saved_of(i);
  out.what = holds::rebuilt;
  return out;
}

/// What a block leaves behind at the instruction's level: bytes that stay, bytes that are dropped.
struct split {
  std::uint64_t saved = 0;
  std::uint64_t rebuilt = 0;
};
constexpr split split_of(operands& o) {
  trace::block_shape const& s = o.state().t.shape(o.i.block);
  if (o.i.level == 0) {
    return {s.saved.value, 0};
  }
  trace::save_level const& at = s.levels[o.i.level - 1];
  return {at.saved.value, at.rebuilt.value};
}

/// The instruction names a pass, at a level that the block has.
constexpr bool names_level(operands& o) {
  if (!o.names_pass()) {
    return false;
  }
  o.require(o.i.level <= o.state().t.shape(o.i.block).levels.size(),
            rejection::malformed,
            "the block has no such save level");
  return o.ok();
}

/// Values of every chunk of the block, at this step's version; batch tensors; x.
constexpr void pass_inputs(operands& o, bool reads_x) {
  machine const& m = o.state();
  o.require(o.i.version == 1, rejection::wrong_version, "a pass of another step's version");
  for (chunk_id const c : m.l.chunks_of[o.i.block.index()]) {
    if (m.l[c].elements == 0) {
      continue;
    }
    operand const* v = o.take(role::value, access::read, space::device, m.value_bytes(c));
    if (v == nullptr) {
      return;
    }
    o.require(v->chunk == c, rejection::not_resident, "a pass names another chunk");
    o.check(*v, value_of(c, o.i.version), rejection::not_resident, rejection::wrong_version);
  }
  if (m.t.batch.value > 0) {
    o.read(role::batch,
           space::device,
           m.t.batch.value,
           {.what = holds::batch, .micro_batch = o.i.micro_batch});
  }
  if (std::uint64_t const x = m.t.shape(o.i.block).input.value; x > 0 && reads_x) {
    o.read(role::input, space::device, x, boundary_of(o.i.block.value - 1, o.i.micro_batch));
  }
}

/// y, saved tensors and scratch of forward and recompute. A recompute writes the same bits (block
/// law), so its temporary output is the boundary too. What forward writes and a level drops is what
/// a rebuild writes, by the same law.
constexpr void pass_outputs(operands& o) {
  trace::block_shape const& s = o.state().t.shape(o.i.block);
  if (s.output.value > 0) {
    o.write(
        role::output, space::device, s.output.value, boundary_of(o.i.block.value, o.i.micro_batch));
  }
  split const left = split_of(o);
  if (left.saved > 0) {
    o.write(role::saved, space::device, left.saved, saved_of(o.i));
  }
  if (left.rebuilt > 0) {
    o.write(role::rebuilt, space::device, left.rebuilt, rebuilt_of(o.i));
  }
  if (s.scratch_forward.value > 0) {
    o.write(role::scratch, space::device, s.scratch_forward.value, {});
  }
}

/// Counts a pass: each block sees micro-batches once and in order.
constexpr void count_pass(operands& o, std::vector<std::uint32_t>& done) {
  std::uint32_t& n = done[o.i.block.index()];
  o.require(o.i.micro_batch >= n, rejection::double_pass, "a block runs a micro-batch twice");
  o.require(o.i.micro_batch <= n, rejection::wrong_order, "a block skips a micro-batch");
  ++n;
}

constexpr void run_forward(operands& o) {
  machine& m = o.state();
  if (!names_level(o)) {
    return;
  }
  o.require(trains(m.p.part) || o.i.level == 0,
            rejection::malformed,
            "an evaluation has nothing to rebuild");
  std::uint32_t const b = o.i.block.value;
  count_pass(o, m.forwards);
  pass_inputs(o, true);
  pass_outputs(o);
  content const loss{.what = holds::loss, .micro_batch = o.i.micro_batch, .count = b};
  content const next{.what = holds::loss, .micro_batch = o.i.micro_batch, .count = b + 1};
  o.change(role::loss,
           space::device,
           m.loss_bytes(),
           loss,
           next,
           rejection::missing_input,
           rejection::wrong_order);
  o.done(0);
}

constexpr void run_recompute(operands& o) {
  machine& m = o.state();
  if (!o.names_pass()) {
    return;
  }
  o.require(m.forwards[o.i.block.index()] > o.i.micro_batch,
            rejection::missing_pass,
            "a recompute before the forward");
  pass_inputs(o, true);
  pass_outputs(o);
  o.done(0);
}

/// From what the level keeps, what it drops; before the block's backward, with the values that its
/// forward read.
constexpr void run_rebuild(operands& o) {
  machine const& m = o.state();
  if (!names_level(o)) {
    return;
  }
  o.require(o.i.level > 0, rejection::malformed, "at level 0 nothing is rebuilt");
  if (!o.ok()) {
    return;
  }
  o.require(m.forwards[o.i.block.index()] > o.i.micro_batch,
            rejection::missing_pass,
            "a rebuild before the forward");
  trace::save_level const& at = m.t.shape(o.i.block).levels[o.i.level - 1];
  pass_inputs(o, at.reads_input);
  split const left = split_of(o);
  if (left.saved > 0) {
    o.read(role::saved, space::device, left.saved, saved_of(o.i));
  }
  if (left.rebuilt > 0) {
    o.write(role::rebuilt, space::device, left.rebuilt, rebuilt_of(o.i));
  }
  if (at.scratch.value > 0) {
    o.write(role::scratch, space::device, at.scratch.value, {});
  }
  o.done(0);
}

constexpr void run_backward(operands& o) {
  machine& m = o.state();
  if (!names_level(o)) {
    return;
  }
  std::uint32_t const b = o.i.block.value;
  trace::block_shape const& s = m.t.shape(o.i.block);
  o.require(
      m.forwards[b] > o.i.micro_batch, rejection::missing_pass, "a backward before the forward");
  count_pass(o, m.backwards);
  pass_inputs(o, s.reads_input);
  content gradient{
      .what = holds::boundary_gradient, .of = b, .micro_batch = o.i.micro_batch, .count = 0};
  if (s.output.value > 0) {
    o.read(role::output_gradient, space::device, s.output.value, gradient);
  }
  if (s.input.value > 0) {
    gradient.of = b - 1;
    o.write(role::input_gradient, space::device, s.input.value, gradient);
  }
  split const left = split_of(o);
  if (left.saved > 0) {
    o.read(role::saved, space::device, left.saved, saved_of(o.i));
  }
  if (left.rebuilt > 0) {
    o.read(role::rebuilt, space::device, left.rebuilt, rebuilt_of(o.i));
  }
  for (std::uint32_t u = m.spans.first[b]; u < m.spans.first[b + 1]; ++u) {
    span_use const use = m.spans.uses[u];
    chunk_id const c = m.p.spans[use.span].chunk;
    operand const* g =
        o.take(role::gradient, access::read_write, space::device, m.gradient_bytes(c));
    if (g == nullptr) {
      return;
    }
    content want{.what = holds::contribution,
                 .of = use.span,
                 .micro_batch = o.i.micro_batch,
                 .count = use.position};
    o.require(g->span.value == use.span && g->chunk == c,
              rejection::wrong_contribution,
              "a backward names another span");
    o.check(*g, want, rejection::wrong_contribution, rejection::wrong_contribution);
    ++want.count;
    m.memory.set(*g, want);
  }
  if (s.scratch_backward.value > 0) {
    o.write(role::scratch, space::device, s.scratch_backward.value, {});
  }
  o.done(0);
}

/// Swap out and in: the same bytes at the other place.
constexpr void run_swap(operands& o, space from, space to) {
  if (!o.names_pass()) {
    return;
  }
  std::uint64_t const size = o.state().t.shape(o.i.block).saved.value;
  o.read(role::saved, from, size, saved_of(o.i));
  o.write(role::saved, to, size, saved_of(o.i));
  o.done(size);
}

constexpr void run_batch_load(operands& o) {
  if (!o.names_micro_batch()) {
    return;
  }
  std::uint64_t const size = o.state().t.batch.value;
  content const batch{.what = holds::batch, .micro_batch = o.i.micro_batch};
  o.read_given(role::batch,
               shared_place::batch,
               size * (o.state().p.before + o.i.micro_batch),
               size,
               batch,
               batch);
  o.write(role::batch, space::device, size, batch);
  o.done(size);
}

constexpr void run_loss_read(operands& o) {
  machine& m = o.state();
  if (!o.names_micro_batch()) {
    return;
  }
  content const loss{.what = holds::loss,
                     .micro_batch = o.i.micro_batch,
                     .count = static_cast<std::uint32_t>(m.t.blocks.size())};
  o.read(role::loss, space::device, m.loss_bytes(), loss);
  o.write(role::loss, space::host, m.loss_bytes(), loss);
  o.share(shared_place::losses,
          m.loss_bytes() * (m.p.before + o.i.micro_batch + m.rank * m.reported()));
  m.losses[o.i.micro_batch] = o.taken() + 1;
  o.done(m.loss_bytes());
}

/// The losses of all micro-batches of every rank, where the caller looks.
constexpr content all_losses(machine const& m) {
  return {.what = holds::loss,
          .micro_batch = static_cast<std::uint32_t>(m.reported()),
          .count = static_cast<std::uint32_t>(m.t.blocks.size())};
}

constexpr void run_loss_exchange(operands& o) {
  machine& m = o.state();
  o.require(m.several(), rejection::malformed, "an exchange in a program of one rank");
  std::uint64_t const own = m.loss_bytes() * m.reported();
  operand const* all = o.take(role::loss, access::read_write, space::host, own * m.p.ranks);
  if (all == nullptr) {
    return;
  }
  o.share(shared_place::losses, 0);
  for (std::uint64_t k = m.p.before; k < m.reported(); ++k) {
    operand one = *all;
    one.offset += m.rank * own + k * m.loss_bytes();
    one.bytes = m.loss_bytes();
    content want = all_losses(m);
    want.micro_batch = static_cast<std::uint32_t>(k - m.p.before);
    o.check(one, want, rejection::missing_result, rejection::missing_result);
  }
  m.memory.set(*all, all_losses(m));
  m.exchanged = o.taken() + 1;
  o.done(own);
}

/// Every rank's shard of a value, brought together: for use, or after an update.
constexpr void run_gather(operands& o) {
  machine& m = o.state();
  o.require(m.several(), rejection::malformed, "a gather in a program of one rank");
  if (!o.names_chunk()) {
    return;
  }
  std::uint64_t const size = m.value_bytes(o.i.chunk);
  operand const* v = o.take(role::value, access::read_write, space::device, size);
  if (v == nullptr) {
    return;
  }
  content const value = value_of(o.i.chunk, o.i.version);
  o.check(m.shard_of(*v), value, rejection::not_resident, rejection::wrong_version);
  m.memory.set(*v, value);
  o.done(size);
}

constexpr void run_upload(operands& o) {
  machine const& m = o.state();
  if (!o.names_chunk()) {
    return;
  }
  content const value = value_of(o.i.chunk, o.i.version);
  std::uint64_t const size = m.value_shard(o.i.chunk);
  o.read(role::value, space::host, size, value, rejection::not_resident, rejection::wrong_version);
  o.write(role::value, space::device, size, value);
  o.done(size);
}

}  // namespace protrain::inline v0::schedule::detail
