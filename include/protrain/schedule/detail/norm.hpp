// SPDX-License-Identifier: Apache-2.0
#pragma once
// The end of the gradients' norm.

#include "protrain/schedule/detail/carried.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/schedule/program.hpp"

namespace protrain::inline v0::schedule::detail {

constexpr void use_own_norm(emitter& emit, carried const& at) {
  emit.use(role::norm, access::read, at.host_norm);
  emit.use(role::norm_copy, access::read, at.norm_copy);
}

/// Of all ranks and both spaces, once every gradient is complete; scalars where updates wait for it.
constexpr void finish_norm(emitter& emit,
                           carried const& at,
                           state_rules const& rules,
                           bool needed) {
  if (at.device_norm.valid()) {
    emit.begin({.op = opcode::norm_read, .queue = queue_id::d2h, .amount = norm_cell_bytes});
    emit.use(role::norm, access::read, at.device_norm);
    emit.use(role::norm_copy, access::write, at.norm_copy);
    emit.end();
  }
  if (rules.ranks() > 1) {
    emit.begin({.op = opcode::norm_exchange, .queue = queue_id::cpu, .amount = norm_cell_bytes});
    use_own_norm(emit, at);
    emit.use(role::norms, access::write, at.norms);
    emit.end();
  }
  emit.begin({.op = opcode::norm_finish, .queue = queue_id::cpu});
  if (rules.ranks() > 1) {
    emit.use(role::norms, access::read, at.norms);
  } else {
    use_own_norm(emit, at);
  }
  emit.use(role::report, access::write, at.report);
  if (needed) {
    emit.use(role::scalars, access::write, at.host_scalars);
  }
  emit.end();
}

}  // namespace protrain::inline v0::schedule::detail
