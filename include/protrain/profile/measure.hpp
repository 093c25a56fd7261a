// SPDX-License-Identifier: Apache-2.0
#pragma once
// Measures a model block by block: the device holds one block at a time, so a model far larger than
// it is measured as well, in about the time of one iteration.

#include "protrain/block/dry_pass.hpp"
#include "protrain/block/entry.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/model/job.hpp"
#include "protrain/profile/detail/lone_run.hpp"
#include "protrain/profile/detail/pass_times.hpp"
#include "protrain/profile/detail/sample_data.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/profile/error.hpp"
#include "protrain/profile/hooks.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::profile {

struct measure_options {
  /// Forward-backward pairs of each shape, and rebuilds of each save level, before they are timed.
  std::uint32_t warm_up = 1;
  std::uint32_t repetitions = 3;  ///< those that are timed; of each pass the median counts
  /// Bytes of device memory taken outside the library now; where it isn't given, the device is
  /// asked (`counts_outside`).
  std::function<std::uint64_t()> outside{};
};

/// A batch as the engine takes it (runtime::batch): named tensors, each of one micro-batch or more.
template <class B>
concept batch_like = requires(B const& b) {
  { b.tensors().begin()->name } -> std::convertible_to<std::string_view>;
  { b.tensors().begin()->data } -> std::convertible_to<void const*>;
  { b.tensors().begin()->bytes } -> std::convertible_to<std::uint64_t>;
};

/// Whatever has its table made for a job: a block::stack.
template <class M>
concept has_entries = requires(M const& m, model::job const& job) {
  { m.entries(job) } -> std::same_as<block::table>;
};

namespace detail {

/// The first block of each of the trace's shapes.
inline std::vector<lone_block> lone_blocks(block::table const& t, trace::trace const& facts) {
  std::vector<lone_block> out;
  for (std::size_t s = 0; s < facts.shapes.size(); ++s) {
    auto const first = std::ranges::find(facts.blocks, make_id<shape_id>(s));
    lone_block b{.id = make_id<block_id>(static_cast<std::size_t>(first - facts.blocks.begin()))};
    block::block_entry const& e = t.blocks[b.id.index()];
    b.need = block::dry_pass(e, facts.job, b.id);
    b.layout = layout_of(t, e, b.need, facts.job);
    out.push_back(std::move(b));
  }
  return out;
}

/// Makes room for the largest.
template <device::device Device>
void reserve(Device& device, block::table const& t, std::vector<lone_block> const& blocks) {
  auto const most =
      std::ranges::max_element(blocks, {}, [](lone_block const& b) { return b.layout.end; });
  if (most == blocks.end()) {
    return;
  }
  try {
    device.reserve(space::device, most->layout.end);
  } catch (device::device_error const& e) {
    std::throw_with_nested(profile_error(
        t.blocks[most->id.index()].name,
        "",
        "to be measured alone it takes " + std::to_string(most->layout.end) + " bytes",
        e.what()));
  }
}

/// What each save level's rebuild takes; of one forward at that level.
template <device::device Device>
void measure_rebuilds(lone_run<Device>& run,
                      trace::block_shape& shape,
                      measure_options const& options) {
  for (std::uint32_t level = 1; level <= shape.levels.size(); ++level) {
    static_cast<void>(run.forward(level));
    std::vector<pass_times> rebuilds;
    for (std::uint64_t i = 0; i < std::uint64_t{options.warm_up} + options.repetitions; ++i) {
      pass_times const again = run.rebuild();
      if (i >= options.warm_up) {
        rebuilds.push_back(again);
      }
    }
    shape.levels[level - 1].rebuild = median(rebuilds).total;
  }
}

/// Fills in the times of a shape.
template <device::device Device>
void measure_shape(lone_run<Device>& run,
                   trace::block_shape& shape,
                   measure_options const& options) {
  std::vector<pass_times> forward;
  std::vector<pass_times> backward;
  for (std::uint64_t i = 0; i < std::uint64_t{options.warm_up} + options.repetitions; ++i) {
    pass_times const there = run.forward();
    pass_times const back = run.backward();
    if (i >= options.warm_up) {
      forward.push_back(there);
      backward.push_back(back);
    }
  }
  pass_times const& there = median(forward);
  pass_times const& back = median(backward);
  shape.forward = there.total;
  shape.backward = back.total;
  for (std::size_t i = 0; i < shape.operators.size(); ++i) {
    shape.operators[i].forward = there.operators[i];
    shape.operators[i].backward = back.operators[i];
  }
}

template <device::device Device>
trace::trace measure(Device& device,
                     block::table const& t,
                     model::job const& job,
                     std::vector<given_tensor> batch,
                     measure_options const& options) {
  PROTRAIN_EXPECT(options.repetitions > 0, "measure: at least one repetition is timed");
  trace::trace out = profile::dry_run(t, job);
  out.from = trace::source::measured;
  sample_data data(t, std::move(batch));
  auto const outside = [&] {
    std::uint64_t const now = options.outside ? options.outside() : outside_of(device);
    out.outside = std::max(out.outside, bytes{now});
  };
  std::vector<lone_block> const blocks = lone_blocks(t, out);
  reserve(device, t, blocks);
  outside();
  for (std::size_t s = 0; s < blocks.size(); ++s) {
    lone_run<Device> run(device, t, job, blocks[s], data);
    measure_shape(run, out.shapes[s], options);
    measure_rebuilds(run, out.shapes[s], options);
    outside();
  }
  return out;
}

template <batch_like Batch>
std::vector<given_tensor> given_by(Batch const& batch) {
  std::vector<given_tensor> out;
  for (auto const& t : batch.tensors()) {
    out.push_back({.name = t.name, .data = t.data, .bytes = t.bytes});
  }
  return out;
}

}  // namespace detail

/// Device memory that `measure` takes: what the largest block needs, alone.
inline bytes device_need(block::table const& t, model::job const& job) {
  std::uint64_t most = 0;
  for (detail::lone_block const& b : detail::lone_blocks(t, dry_run(t, job))) {
    most = std::max(most, b.layout.end);
  }
  return {most};
}

/// The trace of a table's blocks with times as `device` takes them. Of each distinct shape the first
/// block is run alone, `warm_up` + `repetitions` times forward and backward, at the job's capacity;
/// the device holds its parameters, boundary, saved tensors, gradients and scratch, and nothing
/// else (`device_need`). Bytes and fingerprint are the dry run's, so plans made for one serve the
/// other. `outside` is the largest of the readings between blocks.
///
/// Parameters and boundaries hold pseudo-random numbers, always the same ones; batch tensors too,
/// where no batch is given: give one where its data decide how long a block takes. No lease of
/// device memory is live before or afterwards, whatever happens, and nothing is queued. Throws
/// block_error, or profile_error for anything else that a block throws: both name the block and the
/// operator.
template <device::device Device>
trace::trace measure(Device& device,
                     block::table const& t,
                     model::job const& job,
                     measure_options const& options = {}) {
  return detail::measure(device, t, job, {}, options);
}
/// With the first micro-batch of `batch`, which must have every batch tensor of the model.
template <device::device Device, batch_like Batch>
trace::trace measure(Device& device,
                     block::table const& t,
                     model::job const& job,
                     Batch const& batch,
                     measure_options const& options = {}) {
  auto given = detail::given_by(batch);
  if (given.empty() && !t.batch.empty()) {
    throw profile_error("the batch has no tensors, but the model reads '" + t.batch[0].name + "'");
  }
  return detail::measure(device, t, job, std::move(given), options);
}

/// As above, for a model that has no table yet.
template <device::device Device, has_entries Model>
trace::trace measure(Device& device,
                     Model const& model,
                     model::job const& job,
                     measure_options const& options = {}) {
  return measure(device, model.entries(job), job, options);
}
template <device::device Device, has_entries Model, batch_like Batch>
trace::trace measure(Device& device,
                     Model const& model,
                     model::job const& job,
                     Batch const& batch,
                     measure_options const& options = {}) {
  return measure(device, model.entries(job), job, batch, options);
}

}  // namespace protrain::inline v0::profile
