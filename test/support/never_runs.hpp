// SPDX-License-Identifier: Apache-2.0
#pragma once
// Programs that no device could run at all: what the engine takes for granted of a program that was
// verified. Executing them would read outside of tables, so they are told apart before.

#include "protrain/schedule/program.hpp"
#include "test/support/mutant_jobs.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace protrain::test {

/// An instruction that waits for itself or a later one; empty if there is none.
inline std::string waits_for_ever(std::span<schedule::program const> all) {
  for (schedule::program const& p : all) {
    for (std::uint32_t i = 0; i < p.instructions.size(); ++i) {
      for (std::uint32_t const d : p.dependencies_of(p.instructions[i])) {
        if (d >= i) {
          return "waits for what comes after it";
        }
      }
    }
  }
  return {};
}

namespace detail {

inline bool copies(schedule::opcode op) {
  using schedule::opcode;
  return op == opcode::batch_load || op == opcode::upload || op == opcode::swap_out ||
         op == opcode::swap_in || op == opcode::offload || op == opcode::norm_read ||
         op == opcode::scalars_upload || op == opcode::loss_read;
}
inline bool passes(schedule::opcode op) {
  using schedule::opcode;
  return op == opcode::forward || op == opcode::recompute || op == opcode::rebuild ||
         op == opcode::backward;
}
inline bool works_on_chunk(schedule::opcode op) {
  using schedule::opcode;
  return op == opcode::update || op == opcode::norm_partial || op == opcode::accumulate ||
         op == opcode::update_part || op == opcode::state_out;
}
inline bool moves_part(schedule::opcode op) {
  return op == schedule::opcode::state_in || op == schedule::opcode::state_out;
}

inline bool has_role(std::span<schedule::operand const> operands, schedule::role what) {
  return std::ranges::any_of(operands, [&](auto const& o) { return o.what == what; });
}

/// A gradient slot for each parameter that trains.
inline bool has_gradients(mutant_job const& j,
                          std::span<schedule::operand const> operands,
                          block_id b) {
  for (auto const& used : j.model.table.blocks[b.index()].parameters) {
    auto const& about = j.model.facts.parameters[used.id.index()];
    chunk_id const owner = j.layout.where[used.id.index()].owner;
    bool const needed = about.trainable && model::elements(about) > 0;
    bool const there = std::ranges::any_of(operands, [&](schedule::operand const& o) {
      return o.what == schedule::role::gradient && o.chunk == owner;
    });
    if (needed && !there) {
      return false;
    }
  }
  return true;
}

/// Where a save level drops something: both regions, as large as the level says. Tensors are
/// looked up in them by their offsets alone.
inline bool has_saves(mutant_job const& j,
                      std::span<schedule::operand const> operands,
                      schedule::instruction const& i) {
  if (i.level == 0) {
    return true;
  }
  auto const covers = [&](schedule::role what, bytes needed) {
    return needed.value == 0 || std::ranges::any_of(operands, [&](schedule::operand const& o) {
             return o.what == what && o.bytes >= needed.value;
           });
  };
  trace::save_level const& at = j.model.facts.shape(i.block).levels[i.level - 1];
  return covers(schedule::role::saved, at.saved) && covers(schedule::role::rebuilt, at.rebuilt);
}

/// What the executor takes for granted of one instruction.
inline std::string never_runs(mutant_job const& j,
                              schedule::program const& p,
                              schedule::instruction const& i) {
  auto const operands = p.operands_of(i);
  std::size_t const least = copies(i.op) ? 2 : i.op == schedule::opcode::zero ? 1 : 0;
  if (operands.size() < least) {
    return "a copy of nothing";
  }
  if (passes(i.op) && i.block.index() >= j.model.table.blocks.size()) {
    return "no such block";
  }
  if (passes(i.op) && i.level > j.model.facts.shape(i.block).levels.size()) {
    return "no such level";
  }
  if (passes(i.op) && !has_saves(j, operands, i)) {
    return "a level without its memory";
  }
  if (i.op == schedule::opcode::backward && !has_gradients(j, operands, i.block)) {
    return "a gradient without memory";
  }
  if (works_on_chunk(i.op) && i.chunk.index() >= j.layout.chunks.size()) {
    return "no such chunk";
  }
  if (i.op == schedule::opcode::accumulate &&
      (i.span.index() >= p.spans.size() || p.spans[i.span.index()].chunk != i.chunk)) {
    return "another chunk's span";
  }
  if (moves_part(i.op) &&
      (operands.empty() ||
       p.allocations[operands.front().allocation.index()].where == space::host)) {
    return "a part without a slot";
  }
  if ((i.op == schedule::opcode::update || i.op == schedule::opcode::update_part) &&
      (!has_role(operands, schedule::role::value) || !has_role(operands, schedule::role::state))) {
    return "an update of nothing";
  }
  return {};
}

/// Indices and sums of one operand.
inline bool addressable(schedule::program const& p, schedule::operand const& o) {
  constexpr std::uint64_t far = std::uint64_t{1} << 40U;
  return o.allocation.index() < p.allocations.size() && o.offset < far && o.bytes < far &&
         o.stride < far && o.advance < far;
}

inline bool spans_fit(mutant_job const& j, schedule::program const& p) {
  return std::ranges::all_of(p.spans, [&](schedule::gradient_span const& s) {
    return s.chunk.index() < j.layout.chunks.size() &&
           std::ranges::all_of(
               s.tensors,
               [&](schedule::span_tensor const& t) {
                 return t.tensor < j.layout[s.chunk].tensors.size();
               });
  });
}

/// Where the engine itself reads and writes between segments.
inline std::string lacks_homes(mutant_job const& j, std::span<schedule::program const> all) {
  using schedule::role;
  auto const& memory = all.front().allocations;
  std::vector<bool> home(j.layout.chunks.size(), false);
  for (schedule::allocation const& a : memory) {
    bool const known = a.carried && a.chunk.index() < home.size();
    if (known && a.what == category::parameters) {
      home[a.chunk.index()] = true;
    }
  }
  for (std::size_t c = 0; c < home.size(); ++c) {
    if (j.layout.chunks[c].elements > 0 && !home[c]) {
      return "a chunk without a home";
    }
  }
  for (role const what : {role::batch, role::loss, role::report, role::scalars}) {
    bool found = what == role::scalars;  // not every job has them
    for (schedule::program const& p : all) {
      for (schedule::operand const& o : p.operands) {
        if (o.what == what && p.allocations[o.allocation.index()].where == space::host) {
          found = true;
          if (o.allocation.index() >= memory.size()) {
            return "memory of the caller's that only one segment has";
          }
        }
      }
    }
    if (!found) {
      return "no memory for the caller";
    }
  }
  return {};
}

}  // namespace detail

/// Why these programs can't be executed; empty if they can.
inline std::string never_runs(mutant_job const& j, std::span<schedule::program const> all) {
  for (schedule::program const& p : all) {
    bool const fits = p.ranks > 0 && detail::spans_fit(j, p) &&
                      std::ranges::all_of(p.operands, [&](schedule::operand const& o) {
                        return detail::addressable(p, o);
                      });
    if (!fits) {
      return "an index outside its table";
    }
    for (schedule::instruction const& i : p.instructions) {
      if (std::string why = detail::never_runs(j, p, i); !why.empty()) {
        return why;
      }
    }
  }
  return detail::lacks_homes(j, all);
}

}  // namespace protrain::test
