// SPDX-License-Identifier: Apache-2.0
#pragma once
// Instructions and tensors in words, for dumps and messages.

#include "protrain/core/text.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <string_view>

namespace protrain::inline v0::schedule {

/// What a tensor in that role is to people.
constexpr std::string_view name_of(role r) noexcept {
  switch (r) {
    case role::value:
      return "values";
    case role::state:
      return "optimizer state";
    case role::gradient:
      return "gradient";
    case role::store:
      return "gradient store";
    case role::input:
      return "x";
    case role::output:
      return "y";
    case role::input_gradient:
      return "dx";
    case role::output_gradient:
      return "dy";
    case role::saved:
      return "saved tensors";
    case role::rebuilt:
      return "rebuilt tensors";
    case role::scratch:
      return "scratch";
    case role::batch:
      return "batch tensors";
    case role::loss:
      return "losses";
    case role::norm:
      return "norm";
    case role::norm_copy:
      return "copy of the norm";
    case role::norms:
      return "norms of all ranks";
    case role::staging:
      return "staging of a reduction";
    case role::scalars:
      return "scalars of the update";
    case role::report:
      return "report of the norm";
  }
  return "unknown";
}

/// Whether instructions of that kind belong to a micro-batch.
constexpr bool per_micro_batch(opcode op) noexcept {
  switch (op) {
    case opcode::upload:
    case opcode::gather:
    case opcode::norm_partial:
    case opcode::norm_read:
    case opcode::norm_exchange:
    case opcode::norm_finish:
    case opcode::scalars_upload:
    case opcode::update:
    case opcode::state_in:
    case opcode::update_part:
    case opcode::state_out:
    case opcode::loss_exchange:
      return false;
    default:
      return true;
  }
}

/// "block 3 (h)", with the name of its shape.
constexpr text print(block_id b, trace::trace const& facts) {
  text out = "block ";
  out += std::uint64_t{b.value};
  if (b.index() < facts.blocks.size()) {
    out += " (";
    out += facts.shape(b).name.view();
    out += ")";
  }
  return out;
}

/// "backward of block 3 (h), micro-batch 1"; "reduce of chunk 2, micro-batch 0"; "norm_finish".
constexpr text print(instruction const& i, trace::trace const& facts) {
  text out = name_of(i.op);
  if (i.block.valid()) {
    out += " of ";
    out += print(i.block, facts).view();
  } else if (i.chunk.valid()) {
    out += " of chunk ";
    out += std::uint64_t{i.chunk.value};
  }
  if (per_micro_batch(i.op)) {
    out += ", micro-batch ";
    out += std::uint64_t{i.micro_batch};
  }
  return out;
}

}  // namespace protrain::inline v0::schedule
