// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine is made from, the checks before it starts, and where a program keeps what the
// engine reads and writes itself.

#include "protrain/block/entry.hpp"
#include "protrain/chunk/layout.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/runtime/batch.hpp"
#include "protrain/runtime/error.hpp"
#include "protrain/runtime/kernels.hpp"
#include "protrain/schedule/memory.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verify.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/state_format.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// The parts of a plan that an engine executes.
struct plan_parts {
  trace::trace facts;
  chunk::layout layout;
  schedule::program program;
};

/// The parts of a whole plan.
inline plan_parts parts_of(plan::plan const& p) {
  auto program = p.compile();
  if (!program) {
    throw engine_error(std::string("the plan doesn't compile: ") + program.failure().what);
  }
  return {p.trace, p.layout, std::move(*program)};
}

namespace detail {

/// Where a chunk lives between steps.
struct homes {
  allocation_id value{};
  allocation_id state{};
};

/// Homes by chunk, and the host cells.
struct home_table {
  std::vector<homes> chunks{};
  allocation_id host_scalars{};
  allocation_id host_batch{};
  allocation_id host_loss{};
  allocation_id report{};

  homes const& operator[](std::size_t c) const { return chunks[c]; }
};

inline void index_homes(home_table& out, schedule::program const& p, chunk::layout const& l) {
  out.chunks.assign(l.chunks.size(), {});
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    schedule::allocation const& a = p.allocations[i];
    if (a.carried && a.chunk.valid() && a.what == category::parameters) {
      out.chunks[a.chunk.index()].value = make_id<allocation_id>(i);
    } else if (a.carried && a.chunk.valid() && a.what == category::optimizer) {
      out.chunks[a.chunk.index()].state = make_id<allocation_id>(i);
    }
  }
  for (schedule::operand const& o : p.operands) {
    if (p.allocations[o.allocation.index()].where != space::host) {
      continue;
    }
    switch (o.what) {
      case schedule::role::scalars:
        out.host_scalars = o.allocation;
        break;
      case schedule::role::batch:
        out.host_batch = o.allocation;
        break;
      case schedule::role::loss:
        out.host_loss = o.allocation;
        break;
      case schedule::role::report:
        out.report = o.allocation;
        break;
      default:
        break;
    }
  }
}

/// By instruction: whether another queue waits for it.
inline std::vector<std::uint8_t> announced(schedule::program const& p) {
  std::vector<std::uint8_t> out(p.instructions.size(), 0);
  for (schedule::instruction const& i : p.instructions) {
    for (std::uint32_t const d : p.dependencies_of(i)) {
      if (p.instructions[d].queue != i.queue) {
        out[d] = 1;
      }
    }
  }
  return out;
}

inline void check_parameters(trace::trace const& facts, block::table const& model) {
  if (facts.parameters.size() != model.parameters.size()) {
    throw engine_error("the plan is for " + std::to_string(facts.parameters.size()) +
                       " parameters, the model has " + std::to_string(model.parameters.size()) +
                       ": plan again for this model");
  }
  for (std::size_t i = 0; i < facts.parameters.size(); ++i) {
    if (facts.parameters[i] != model.parameters[i]) {
      throw engine_error("parameter " + std::string(model.parameters[i].name.view()) +
                         " differs from the plan's " +
                         std::string(facts.parameters[i].name.view()) +
                         ": plan again for this model");
    }
  }
}

/// The parts, once they fit the model and the communicator, and the program is proven sound.
inline plan_parts checked(plan_parts parts, block::table const& model, std::uint32_t ranks) {
  check_parameters(parts.facts, model);
  if (parts.facts.blocks.size() != model.blocks.size()) {
    throw engine_error("the plan is for " + std::to_string(parts.facts.blocks.size()) +
                       " blocks, the model has " + std::to_string(model.blocks.size()) +
                       ": plan again for this model");
  }
  if (parts.facts.job.world != ranks) {
    throw engine_error("the plan is for " + std::to_string(parts.facts.job.world) +
                       " ranks, the communicator has " + std::to_string(ranks) +
                       ": plan again for this world size");
  }
  if (parts.program.fingerprint != trace::fingerprint(parts.facts)) {
    throw engine_error("the program was compiled for another job: compile it again");
  }
  schedule::verdict const v = schedule::verify(parts.program, parts.facts, parts.layout);
  if (!v.ok) {
    throw engine_error("the program is refused at instruction " + std::to_string(v.instruction) +
                       ": " + v.what);
  }
  return parts;
}

/// The data of a batch tensor, which must have exactly `bytes` bytes.
inline void const* tensor_of(batch const& data, std::string const& name, std::uint64_t bytes) {
  for (batch::tensor const& t : data.tensors()) {
    if (t.name == name) {
      if (t.bytes != bytes) {
        throw engine_error("batch tensor " + name + " has " + std::to_string(t.bytes) +
                           " bytes, the job's micro-batches need " + std::to_string(bytes));
      }
      return t.data;
    }
  }
  throw engine_error("the batch has no tensor " + name + ", which the model reads: add it");
}

}  // namespace detail

/// A chunk's value and state on the heap, for loading and reading.
class chunk_image {
 public:
  chunk_image(chunk::chunk const& c, detail::homes const& home, update::state_bytes const& b)
      : elements_(c.elements),
        type_(b.type),
        value_(c.elements * b.value),
        state_(home.state.valid() ? c.elements * b.state : 0) {}

  std::span<std::byte> value() noexcept { return value_; }
  std::span<std::byte> state() noexcept { return state_; }
  chunk_arrays arrays() noexcept {
    return {.value = value_.data(),
            .state = state_.empty() ? nullptr : state_.data(),
            .value_type = type_,
            .elements = elements_};
  }

 private:
  std::uint64_t elements_;
  dtype type_;
  std::vector<std::byte> value_;
  std::vector<std::byte> state_;
};

}  // namespace protrain::inline v0::runtime
