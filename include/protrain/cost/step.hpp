// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a step must do whatever the plan: the sizes and times that lower bounds are made of.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/result.hpp"
#include "protrain/cost/rates.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/spans.hpp"
#include "protrain/trace/trace.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

/// One contribution to a chunk's gradient in each micro-batch, and what it entails at each site.
struct span_cost {
  chunk_id chunk;
  block_id opens;                ///< its slot is zeroed before this block's backward
  block_id closes;               ///< complete after this block's backward
  bool last = false;             ///< norm and update of the chunk follow in the last micro-batch
  std::uint64_t slot_bytes = 0;  ///< granules
  picoseconds reduce{};          ///< over ranks
  picoseconds zero{};
  picoseconds offload{};
  picoseconds accumulate_device{};
  picoseconds accumulate_host{};
};

/// What an update takes where the chunk is streamed.
struct stream_cost {
  std::uint64_t slot = 0;  ///< granules of its largest part
  picoseconds up{};
  picoseconds down{};
  picoseconds up_least{};    ///< of its smallest part
  picoseconds down_least{};  ///< likewise
  bool operator==(stream_cost const&) const = default;
};

/// One chunk: bytes where it lives, and its share of each queue of one rank.
struct chunk_cost {
  bool updated = false;           ///< some trainable tensor of it has elements
  std::uint64_t value = 0;        ///< granules of all its values
  std::uint64_t value_shard = 0;  ///< granules of a rank's
  std::uint64_t states = 0;       ///< granules of a rank's optimizer state and gradient store
  std::uint64_t store = 0;        ///< granules of a store that only a deferred update needs
  picoseconds upload{};           ///< once
  picoseconds gather{};           ///< of all ranks' shards, once
  picoseconds norm_device{};
  picoseconds norm_host{};
  picoseconds update_device{};
  picoseconds update_host{};
  bool stored = false;  ///< its gradient needs a store, whenever the update is
  stream_cost streamed{};
  stream_cost streamed_stored{};  ///< with the gradient from the host
};

/// The facts of a job, a layout and a machine that bounds of all plans share.
struct step {
  std::uint32_t blocks = 0;
  std::uint32_t micro_batches = 1;
  std::uint32_t in_program = 1;  ///< micro-batches of the step's largest program
  std::uint64_t ranks = 1;
  std::uint64_t staging = 0;  ///< granules of a reduction's, for regular chunks
  bool waits = false;         ///< updates come after the norm in program order
  bool defers = false;        ///< updates may be left to the next step
  bool needs_norm = false;    ///< and depend on it
  picoseconds forward{};      ///< of one micro-batch
  picoseconds forward_last{};
  picoseconds backward_first{};  ///< of block 0, which runs last
  picoseconds batch{};           ///< load of one micro-batch
  picoseconds loss_read{};
  picoseconds norm_read{};
  picoseconds scalars{};
  std::vector<span_cost> spans{};
  std::vector<std::vector<std::uint32_t>> opening{};  ///< by block: spans that begin there
  std::vector<std::vector<std::uint32_t>> closing{};  ///< and that end there
  std::vector<chunk_cost> chunks{};
};

namespace detail {

constexpr std::vector<std::uint32_t> spans_per_chunk(
    std::vector<schedule::gradient_span> const& spans, std::size_t chunks) {
  std::vector<std::uint32_t> count(chunks, 0);
  for (schedule::gradient_span const& s : spans) {
    ++count[s.chunk.index()];
  }
  return count;
}

/// Bytes per element of the chunk's gradient over all contributions; 0 when the slot itself is
/// read.
constexpr std::uint64_t store_bytes(update::state_bytes const& b,
                                    std::uint64_t contributions,
                                    bool waits) {
  if (contributions > 1) {
    return 4;
  }
  return waits ? b.gradient : 0;
}

/// `n` elements go up with `up` bytes each and come back with `down`, in parts of `part` elements.
constexpr stream_cost stream_of(
    std::uint64_t n, std::uint64_t part, std::uint64_t up, std::uint64_t down, rates const& r) {
  std::uint64_t const whole = n / part;
  std::uint64_t const rest = n % part;
  stream_cost out{.slot = granules(checked_mul(part, up)),
                  .up = upload_time(r, checked_mul(part, up)) * whole,
                  .down = download_time(r, checked_mul(part, down)) * whole};
  std::uint64_t const least = rest > 0 ? rest : std::min(n, part);
  out.up_least = upload_time(r, checked_mul(least, up));
  out.down_least = download_time(r, checked_mul(least, down));
  if (rest > 0) {
    out.up += out.up_least;
    out.down += out.down_least;
  }
  return out;
}

constexpr chunk_cost cost_of(chunk::chunk const& c,
                             std::uint64_t contributions,
                             update::state_bytes const& b,
                             bool waits,
                             std::uint32_t parts,
                             model::job const& j,
                             rates const& r) {
  std::uint64_t const ranks = j.world;
  std::uint64_t const n = c.elements / ranks;
  chunk_cost out{.updated = contributions > 0,
                 .value = granules(checked_mul(c.elements, b.value)),
                 .value_shard = granules(checked_mul(n, b.value))};
  if (n > 0) {
    out.upload = upload_time(r, checked_mul(n, b.value));
    out.gather = collective_time(r, j, checked_mul(c.elements, b.value));
  }
  if (!out.updated) {
    return out;
  }
  std::uint64_t const store = store_bytes(b, contributions, waits);
  std::uint64_t const final = store > 0 ? store : b.gradient;
  std::uint64_t const moved = checked_mul(n, 2 * (b.value + b.state) + final);
  out.states = granules(checked_mul(n, b.state)) + granules(checked_mul(n, store));
  out.store = store > 0 ? 0 : granules(checked_mul(n, b.gradient));
  out.norm_device = device_time(r, checked_mul(n, final));
  out.norm_host = host_time(r, checked_mul(n, final));
  out.update_device = device_time(r, moved);
  out.update_host = host_time(r, moved);
  std::uint64_t const part = schedule::part_elements(n, parts);
  std::uint64_t const back = b.value + b.state;
  out.stored = store > 0;
  out.streamed = stream_of(n, part, back, back, r);
  out.streamed_stored = stream_of(n, part, back + final, back, r);
  return out;
}

constexpr span_cost cost_of(schedule::gradient_span const& s,
                            chunk::chunk const& c,
                            std::uint64_t contributions,
                            bool last,
                            update::state_bytes const& b,
                            model::job const& j,
                            bool waits,
                            rates const& r) {
  std::uint64_t const slot = checked_mul(c.elements, b.gradient);
  std::uint64_t const n = c.elements / j.world;
  std::uint64_t const store = store_bytes(b, contributions, waits);
  std::uint64_t const moved = checked_mul(n, b.gradient + 2 * store);
  span_cost out{.chunk = s.chunk,
                .opens = s.blocks.front(),
                .closes = s.blocks.back(),
                .last = last,
                .slot_bytes = granules(slot),
                .reduce = collective_time(r, j, slot),
                .zero = device_time(r, slot),
                .offload = download_time(r, checked_mul(n, b.gradient))};
  out.accumulate_device = store > 0 ? device_time(r, moved) : picoseconds{};
  out.accumulate_host = contributions > 1 ? host_time(r, moved) : picoseconds{};
  return out;
}

}  // namespace detail

/// The step of a job whose dtype and state format go together, in programs of up to `unroll`
/// micro-batches; streamed chunks go in up to `parts` parts. O(parameters + blocks).
constexpr result<step> make_step(trace::trace const& t,
                                 chunk::layout const& l,
                                 update::timing time,
                                 rates const& r,
                                 std::uint32_t unroll = schedule::default_unroll,
                                 std::uint32_t parts = schedule::default_stream_parts) {
  auto const bytes = update::bytes_of(t.job);
  if (!bytes) {
    return bytes.failure();
  }
  PROTRAIN_EXPECT(!t.blocks.empty(), "a job without blocks");
  step out{.blocks = static_cast<std::uint32_t>(t.blocks.size()),
           .micro_batches = static_cast<std::uint32_t>(t.job.accumulate),
           .in_program = schedule::cut_step(t.job.accumulate, unroll).first,
           .ranks = t.job.world,
           .waits = time == update::timing::after_backward ||
                    (time == update::timing::before_next_use && model::needs_norm(t.job)),
           .defers = time == update::timing::before_next_use,
           .needs_norm = model::needs_norm(t.job)};
  for (shape_id const s : t.blocks) {
    out.forward += t.shapes[s.index()].forward;
  }
  out.forward_last = t.shapes[t.blocks.back().index()].forward;
  out.backward_first = t.shapes[t.blocks.front().index()].backward;
  out.batch = t.batch.value > 0 ? upload_time(r, t.batch.value) : picoseconds{};
  out.loss_read = download_time(r, checked_mul(t.job.micro_batch, 4));
  out.norm_read = download_time(r, schedule::norm_cell_bytes);
  out.scalars = upload_time(r, schedule::scalars_bytes);
  auto const spans = schedule::make_spans(t, l);
  auto const count = detail::spans_per_chunk(spans, l.chunks.size());
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    std::uint64_t const contributions = checked_mul(count[c], t.job.accumulate);
    out.chunks.push_back(
        detail::cost_of(l.chunks[c], contributions, *bytes, out.waits, parts, t.job, r));
    if (out.ranks > 1 && count[c] > 0 && !l.chunks[c].oversize) {
      std::uint64_t const slot = granules(checked_mul(l.chunks[c].elements, bytes->gradient));
      out.staging = std::max(out.staging, slot);
    }
  }
  out.opening.assign(out.blocks, std::vector<std::uint32_t>{});
  out.closing = out.opening;
  for (schedule::gradient_span const& s : spans) {
    auto const at = static_cast<std::uint32_t>(out.spans.size());
    out.opening[s.blocks.front().index()].push_back(at);
    out.closing[s.blocks.back().index()].push_back(at);
    std::uint32_t const of_chunk = count[s.chunk.index()];
    std::uint64_t const contributions = checked_mul(of_chunk, t.job.accumulate);
    bool const last = s.ordinal + 1 == of_chunk;
    out.spans.push_back(
        detail::cost_of(s, l[s.chunk], contributions, last, *bytes, t.job, out.waits, r));
  }
  return out;
}

}  // namespace protrain::inline v0::cost
