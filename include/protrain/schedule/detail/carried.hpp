// SPDX-License-Identifier: Apache-2.0
#pragma once
// Memory that is carried from segment to segment. It is taken before anything else and in one
// order, so that it lies at the same place in all segments of a job.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/detail/emitter.hpp"
#include "protrain/schedule/detail/state_rules.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// Where a chunk's states live.
struct chunk_homes {
  allocation_id value{};
  allocation_id state{};
  allocation_id store{};
};

struct carried {
  std::vector<chunk_homes> chunks{};
  std::vector<allocation_id> streaming{};  ///< slots for parts of streamed chunks
  allocation_id staging{};                 ///< of reductions of regular chunks
  allocation_id device_norm{};
  allocation_id device_scalars{};
  allocation_id norm_copy{};
  allocation_id norms{};
  allocation_id host_norm{};
  allocation_id host_scalars{};
  allocation_id report{};
  allocation_id host_batch{};
  allocation_id host_loss{};
};

/// Takes everything that is carried: values, state, stores, parameter buffers, staging, cells.
class carried_memory {
 public:
  constexpr carried_memory(emitter& to,
                           trace::trace const& t,
                           chunk::layout const& l,
                           knobs const& k,
                           state_rules const& rules)
      : emit_(to), facts_(t), layout_(l), knobs_(k), rules_(rules) {
    out_.chunks.assign(l.chunks.size(), chunk_homes{});
  }

  constexpr carried run(auto& values) {
    take_values(values);
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      if (rules_.updated(id)) {
        out_.chunks[c].state = take(id, category::optimizer, rules_.state_shard(id));
      }
    }
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      if (rules_.stored(id)) {
        out_.chunks[c].store = take(id, category::gradients, rules_.store_shard(id));
      }
    }
    take_buffers(values);
    take_streaming();
    take_staging();
    take_cells();
    return std::move(out_);
  }

 private:
  constexpr allocation_id take(chunk_id c, category what, std::uint64_t size) {
    return emit_.take(
        {.where = rules_.where(c), .what = what, .bytes = size, .carried = true, .chunk = c});
  }

  constexpr void take_values(auto& values) {
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      std::uint64_t const size =
          rules_.persistent(id) ? rules_.value_bytes(id) : rules_.value_shard(id);
      out_.chunks[c].value = take(id, category::parameters, size);
      values.set_home(id, out_.chunks[c].value);
    }
  }

  constexpr void take_buffers(auto& values) {
    std::uint64_t largest = 0;
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      bool const regular = !rules_.persistent(id) && !layout_[id].oversize;
      largest = regular ? std::max(largest, rules_.value_bytes(id)) : largest;
    }
    for (std::uint32_t i = 0; i < knobs_.buffers && largest > 0; ++i) {
      values.add_buffer(emit_.take({.where = space::device,
                                    .what = category::parameter_buffers,
                                    .bytes = largest,
                                    .carried = true}));
    }
  }

  /// Each holds the largest part: value, state and, where it waits on the host, the gradient.
  constexpr void take_streaming() {
    std::uint64_t largest = 0;
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      std::uint64_t const part = checked_mul(rules_.part_elements(id), rules_.streamed_bytes(id));
      largest = std::max(largest, part);
    }
    for (std::uint32_t i = 0; i < rules_.streaming_slots() && largest > 0; ++i) {
      out_.streaming.push_back(cell(space::device, largest));
    }
  }

  /// One is enough: reductions run one after the other.
  constexpr void take_staging() {
    std::uint64_t largest = 0;
    for (std::size_t c = 0; c < rules_.chunks() && rules_.ranks() > 1; ++c) {
      auto const id = make_id<chunk_id>(c);
      bool const regular = rules_.updated(id) && !layout_[id].oversize;
      largest = regular ? std::max(largest, rules_.gradient_bytes(id)) : largest;
    }
    out_.staging = cell(space::device, largest);
  }

  constexpr allocation_id cell(space where, std::uint64_t size, category what = category::staging) {
    return emit_.take({.where = where, .what = what, .bytes = size, .carried = true});
  }

  constexpr void take_cells() {
    bool norms = false;
    bool updates = false;
    for (std::size_t c = 0; c < rules_.chunks(); ++c) {
      auto const id = make_id<chunk_id>(c);
      norms = norms || (rules_.updated(id) && rules_.gradient_on_device(id));
      updates = updates || (rules_.updated(id) && rules_.site(id) != update::site::cpu);
    }
    if (norms) {
      out_.device_norm = cell(space::device, norm_cell_bytes);
    }
    if (updates) {
      out_.device_scalars = cell(space::device, scalars_bytes);
    }
    if (norms) {
      out_.norm_copy = cell(space::host, norm_cell_bytes);
    }
    out_.host_norm = cell(space::host, norm_cell_bytes);
    if (rules_.ranks() > 1) {
      out_.norms = cell(space::host, checked_mul(norm_cell_bytes, rules_.ranks()));
    }
    out_.host_scalars = cell(space::host, scalars_bytes);
    out_.report = cell(space::host, report_bytes);
    model::job const& j = facts_.job;
    out_.host_batch =
        cell(space::host, checked_mul(facts_.batch.value, j.accumulate), category::batch);
    out_.host_loss =
        cell(space::host,
             checked_mul(checked_mul(checked_mul(j.micro_batch, 4), j.accumulate), rules_.ranks()),
             category::batch);
  }

  emitter& emit_;
  trace::trace const& facts_;
  chunk::layout const& layout_;
  knobs const& knobs_;
  state_rules const& rules_;
  carried out_{};
};

}  // namespace protrain::inline v0::schedule::detail
