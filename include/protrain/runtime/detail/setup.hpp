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

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace protrain::inline v0::runtime {

/// The parts of a plan that an engine executes.
struct plan_parts {
  trace::trace facts;
  chunk::layout layout;
  std::vector<schedule::program> programs;  ///< the segments, `step` first
};

/// The parts of a whole plan.
inline plan_parts parts_of(plan::plan const& p) {
  auto programs = p.segments();
  if (!programs) {
    throw engine_error(std::string("the plan doesn't compile: ") + programs.failure().what);
  }
  return {p.trace, p.layout, std::move(*programs)};
}

namespace detail {

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

/// A program may rebuild what the trace says that a block can.
inline void check_levels(trace::trace const& facts, block::table const& model) {
  for (std::size_t b = 0; b < model.blocks.size(); ++b) {
    std::size_t const planned = facts.shape(make_id<block_id>(b)).levels.size();
    std::size_t const there = model.blocks[b].levels.size();
    if (planned > there) {
      throw engine_error("the plan is for " + std::to_string(planned) + " save levels of block " +
                         model.blocks[b].name + ", the model has " + std::to_string(there) +
                         ": plan again for this model");
    }
  }
}

/// A step, whole or cut, and what continues and completes it where it leaves updates behind.
inline void check_programs(plan_parts const& parts) {
  auto const has = [&](schedule::segment part) {
    return std::ranges::any_of(parts.programs, [&](auto const& p) { return p.part == part; });
  };
  using schedule::segment;
  bool const cut = !parts.programs.empty() && parts.programs.front().part == segment::first;
  if (parts.programs.empty() || (!cut && parts.programs.front().part != segment::step)) {
    throw engine_error("the plan has no program of a step: compile its segments, in their order");
  }
  if (cut && !has(segment::last)) {
    throw engine_error("the plan's step begins but doesn't end: compile all its segments");
  }
  for (schedule::program const& p : parts.programs) {
    if (p.fingerprint != trace::fingerprint(parts.facts)) {
      throw engine_error("the program was compiled for another job: compile it again");
    }
  }
  bool const defers = std::ranges::find(parts.programs.front().deferred, 1) !=
                      parts.programs.front().deferred.end();
  if (defers && (!has(cut ? segment::first_resumed : segment::resume) || !has(segment::flush))) {
    throw engine_error(
        "the plan defers updates but has no program that carries them out: compile "
        "all its segments");
  }
}

/// The parts, once they fit the model and the communicator, and the programs are proven sound.
inline plan_parts checked(plan_parts parts,
                          block::table const& model,
                          std::uint32_t rank,
                          std::uint32_t ranks) {
  check_parameters(parts.facts, model);
  if (parts.facts.blocks.size() != model.blocks.size()) {
    throw engine_error("the plan is for " + std::to_string(parts.facts.blocks.size()) +
                       " blocks, the model has " + std::to_string(model.blocks.size()) +
                       ": plan again for this model");
  }
  check_levels(parts.facts, model);
  if (parts.facts.job.world != ranks) {
    throw engine_error("the plan is for " + std::to_string(parts.facts.job.world) +
                       " ranks, the communicator has " + std::to_string(ranks) +
                       ": plan again for this world size");
  }
  check_programs(parts);
  constexpr auto any = std::numeric_limits<std::uint64_t>::max();
  schedule::segment part{};
  schedule::verdict const v =
      schedule::verify_segments(parts.programs, parts.facts, parts.layout, any, any, rank, &part);
  if (!v.ok) {
    throw engine_error("the program of segment " + std::string(schedule::name_of(part)) +
                       " is refused at instruction " + std::to_string(v.instruction) + ": " +
                       v.what);
  }
  return parts;
}

/// Memory of one space that every one of the programs fits into.
inline std::uint64_t largest_peak(std::vector<schedule::program> const& programs, space s) {
  std::uint64_t most = 0;
  for (schedule::program const& p : programs) {
    most = std::max(most, schedule::memory_of(p, s).peak);
  }
  return most;
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

/// Micro-batches [first, first + count) of the `of` that a batch holds.
struct micro_batch_range {
  std::uint64_t first = 0;
  std::uint64_t count = 0;
  std::uint64_t of = 0;
};

/// Copies them one after the other into host memory that has `bytes` for each.
inline void copy_micro_batches(batch const& data,
                               block::table const& model,
                               micro_batch_range const& range,
                               std::byte* into,
                               std::uint64_t bytes) {
  for (std::size_t k = 0, offset = 0; k < model.batch.size(); ++k) {
    std::uint64_t const one = model.batch[k].facts.bytes();
    auto const* const from =
        static_cast<std::byte const*>(tensor_of(data, model.batch[k].name, one * range.of));
    for (std::uint64_t m = 0; m < range.count; ++m) {
      std::memcpy(into + m * bytes + offset, from + (range.first + m) * one, one);
    }
    offset += granules(one);
  }
}

/// Micro-batches that a batch of any number of them holds.
inline std::uint64_t micro_batches_in(batch const& data, block::table const& model) {
  for (block::batch_tensor const& wanted : model.batch) {
    for (batch::tensor const& t : data.tensors()) {
      std::uint64_t const one = wanted.facts.bytes();
      if (t.name == wanted.name && one > 0) {
        if (t.bytes == 0 || t.bytes % one != 0) {
          throw engine_error("batch tensor " + t.name + " has " + std::to_string(t.bytes) +
                             " bytes, no multiple of a micro-batch's " + std::to_string(one));
        }
        return t.bytes / one;
      }
    }
  }
  return 1;
}

}  // namespace detail

}  // namespace protrain::inline v0::runtime
