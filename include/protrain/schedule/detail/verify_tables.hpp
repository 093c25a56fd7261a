// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify, first part: every index is inside its table and the layout belongs to the trace.
// Everything after this may index without looking.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

namespace protrain::inline v0::schedule::detail {

inline constexpr std::uint64_t most_bytes = std::numeric_limits<std::uint64_t>::max();

/// True when [first, first + count) lies inside a table of `size` rows.
constexpr bool inside(std::uint64_t first, std::uint64_t count, std::uint64_t size) noexcept {
  return first <= size && count <= size - first;
}

/// The blocks of a trace fit each other: each reads what the one before wrote.
constexpr verdict check_trace(trace::trace const& t) {
  if (t.blocks.empty()) {
    return reject(rejection::malformed, "a job without blocks");
  }
  std::uint64_t before = 0;
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    if (t.blocks[b].index() >= t.shapes.size()) {
      return reject(rejection::malformed, "a block of an unknown shape", verdict::nowhere, b);
    }
    trace::block_shape const& s = t.shapes[t.blocks[b].index()];
    if (s.input.value != before) {
      return reject(
          rejection::malformed, "a block's input is not the output before it", verdict::nowhere, b);
    }
    if (s.levels.size() > trace::most_levels) {
      return reject(rejection::malformed, "a block with too many save levels", verdict::nowhere, b);
    }
    before = s.output.value;
  }
  return before == 0 ? verdict{}
                     : reject(rejection::malformed, "the last block has an output nobody reads");
}

constexpr chunk::location location_of(std::size_t c, chunk::placed_tensor const& p) {
  return {make_id<chunk_id>(c), p.offset};
}

/// One chunk: tensors in order, aligned, disjoint, of its trainability, each seen once.
constexpr verdict check_chunk(trace::trace const& t,
                              chunk::layout const& l,
                              std::size_t c,
                              std::vector<std::uint8_t>& seen) {
  chunk::chunk const& k = l.chunks[c];
  std::uint64_t end = 0;
  std::uint64_t payload = 0;
  for (chunk::placed_tensor const& p : k.tensors) {
    std::size_t const i = p.parameter.index();
    if (i >= seen.size() || seen[i] != 0 || t.parameters[i].trainable != k.trainable ||
        l.where[i] != location_of(c, p) || model::elements(t.parameters[i]) != p.elements ||
        p.offset != end || p.elements > most_bytes / 64 - end) {
      return reject(rejection::malformed, "a chunk doesn't hold its tensors", verdict::nowhere, c);
    }
    seen[i] = 1;
    end += round_up(p.elements, element_granule);
    end += t.job.debug && p.elements > 0 ? element_granule : 0;
    payload += p.elements;
  }
  bool const size = k.elements == round_up(end, element_granule * t.job.world) &&
                    k.payload == payload &&
                    (k.oversize ? k.tensors.size() == 1 : end <= l.capacity);
  return size ? verdict{}
              : reject(rejection::malformed, "a chunk of a wrong size", verdict::nowhere, c);
}

/// Blocks that use non-empty tensors of chunk `c`; `user` gets 1 + c for each. More than there are
/// if one is unknown.
constexpr std::size_t mark_users(trace::trace const& t,
                                 chunk::layout const& l,
                                 std::size_t c,
                                 std::vector<std::size_t>& user) {
  std::size_t users = 0;
  for (chunk::placed_tensor const& p : l.chunks[c].tensors) {
    if (p.elements == 0) {
      continue;
    }
    for (block_id const b : t.parameters[p.parameter.index()].uses) {
      if (b.index() >= user.size()) {
        return user.size() + 1;
      }
      users += user[b.index()] == c + 1 ? 0U : 1U;
      user[b.index()] = c + 1;
    }
  }
  return users;
}

/// `blocks` of every chunk are the users of its non-empty tensors, and `chunks_of` says the same.
constexpr verdict check_users(trace::trace const& t, chunk::layout const& l) {
  std::vector<std::size_t> listed(t.blocks.size(), 0);  // by block: chunks that name it so far
  std::vector<std::size_t> user(t.blocks.size(), 0);    // by block: 1 + last chunk that it uses
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    std::size_t const users = mark_users(t, l, c, user);
    if (users > user.size()) {
      return reject(rejection::malformed, "a parameter used by an unknown block");
    }
    std::size_t last = 0;
    for (block_id const b : l.chunks[c].blocks) {
      bool const fits = b.index() < user.size() && user[b.index()] == c + 1 &&
                        b.index() + 1 > last && listed[b.index()] < l.chunks_of[b.index()].size() &&
                        l.chunks_of[b.index()][listed[b.index()]].index() == c;
      if (!fits) {
        return reject(rejection::malformed, "a chunk names wrong blocks", verdict::nowhere, c);
      }
      last = b.index() + 1;
      ++listed[b.index()];
    }
    if (users != l.chunks[c].blocks.size()) {
      return reject(rejection::malformed, "a chunk misses a block", verdict::nowhere, c);
    }
  }
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    if (listed[b] != l.chunks_of[b].size()) {
      return reject(rejection::malformed, "a block names a wrong chunk", verdict::nowhere, b);
    }
  }
  return {};
}

/// The layout is one of this trace.
constexpr verdict check_layout(trace::trace const& t, chunk::layout const& l) {
  if (l.chunks_of.size() != t.blocks.size() || l.where.size() != t.parameters.size() ||
      t.job.world == 0) {
    return reject(rejection::malformed, "a layout of another job");
  }
  std::vector<std::uint8_t> seen(t.parameters.size(), 0);
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    if (verdict const v = check_chunk(t, l, c, seen); !v) {
      return v;
    }
  }
  for (std::size_t i = 0; i < seen.size(); ++i) {
    if (seen[i] == 0) {
      return reject(rejection::malformed, "a parameter in no chunk", verdict::nowhere, i);
    }
  }
  return check_users(t, l);
}

/// Bits of the queues that may run an opcode.
constexpr unsigned queues_of(opcode op) noexcept {
  constexpr auto bit = [](queue_id q) { return 1U << static_cast<unsigned>(q); };
  switch (op) {
    case opcode::batch_load:
    case opcode::upload:
    case opcode::swap_in:
    case opcode::scalars_upload:
    case opcode::state_in:
      return bit(queue_id::h2d);
    case opcode::swap_out:
    case opcode::offload:
    case opcode::norm_read:
    case opcode::loss_read:
    case opcode::state_out:
      return bit(queue_id::d2h);
    case opcode::forward:
    case opcode::recompute:
    case opcode::rebuild:
    case opcode::backward:
    case opcode::update_part:
      return bit(queue_id::compute);
    case opcode::zero:
    case opcode::accumulate:
    case opcode::norm_partial:
    case opcode::update:
      return bit(queue_id::compute) | bit(queue_id::cpu);
    case opcode::gather:
      return bit(queue_id::gather);
    case opcode::reduce:
      return bit(queue_id::reduce);
    case opcode::norm_exchange:
    case opcode::norm_finish:
    case opcode::loss_exchange:
      return bit(queue_id::cpu);
  }
  return 0;
}

/// True when the part of every rank and of the last micro-batch lies in the allocation too.
constexpr bool parts_inside(program const& p, operand const& o, std::uint64_t size) {
  std::uint64_t room = size - o.offset - o.bytes;
  std::uint64_t const before =
      p.before + std::uint64_t{p.times - 1} * std::uint64_t{p.micro_batches};
  if (o.stride > 0) {
    if (p.ranks - 1 > room / o.stride) {
      return false;
    }
    room -= (p.ranks - 1) * o.stride;
  }
  return o.advance == 0 || before <= room / o.advance;
}

/// One instruction's own fields: enumerators, ranges, queue, earlier dependencies, operand bounds.
constexpr verdict check_instruction(program const& p, std::uint32_t at) {
  instruction const& i = p.instructions[at];
  if (static_cast<std::size_t>(i.op) >= opcode_count ||
      static_cast<std::size_t>(i.queue) >= queue_count) {
    return reject(rejection::malformed, "no such opcode or queue", at);
  }
  if (!inside(i.first_operand, i.operand_count, p.operands.size()) ||
      !inside(i.first_dependency, i.dependency_count, p.dependencies.size())) {
    return reject(rejection::malformed, "operands or dependencies outside their table", at);
  }
  if ((queues_of(i.op) & (1U << static_cast<unsigned>(i.queue))) == 0) {
    return reject(rejection::wrong_queue, "this queue can't run the instruction", at);
  }
  bool const has_level =
      i.op == opcode::forward || i.op == opcode::rebuild || i.op == opcode::backward;
  if (i.level != 0 && !has_level) {
    return reject(rejection::malformed, "an instruction that has no save level", at);
  }
  for (std::uint32_t const d : p.dependencies_of(i)) {
    if (d >= at) {
      return reject(rejection::cycle, "a dependency on a later instruction", at, d);
    }
  }
  for (operand const& o : p.operands_of(i)) {
    if (o.mode > access::read_write) {
      return reject(rejection::malformed, "no such access", at);
    }
    allocation const& a = p.allocations[o.allocation.index()];
    if (o.bytes == 0 || !inside(o.offset, o.bytes, a.bytes) || !parts_inside(p, o, a.bytes)) {
      return reject(
          rejection::malformed, "an operand outside its allocation", at, o.allocation.index());
    }
    bool const may_advance =
        a.where == space::host && a.carried && (o.what == role::batch || o.what == role::loss);
    if (o.advance > 0 && !may_advance) {
      return reject(rejection::malformed, "only the caller's memory advances", at);
    }
    if (at < a.begin || at >= a.end) {
      return reject(
          rejection::dead_memory, "an operand's allocation is not live", at, o.allocation.index());
    }
  }
  return {};
}

/// Also operands that no instruction has are of some allocation: the caller's memory is looked for
/// among all of them.
constexpr verdict check_instructions(program const& p) {
  for (operand const& o : p.operands) {
    if (o.allocation.index() >= p.allocations.size()) {
      return reject(rejection::malformed, "an operand of no allocation");
    }
  }
  for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
    if (verdict const v = check_instruction(p, i); !v) {
      return v;
    }
  }
  return {};
}

}  // namespace protrain::inline v0::schedule::detail
