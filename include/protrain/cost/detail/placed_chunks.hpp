// SPDX-License-Identifier: Apache-2.0
#pragma once
// What chunks bring to a placement: bytes, uploads, gathers, streamed and deferred updates.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/math.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace protrain::inline v0::cost::detail {

/// Uploads of a dedicated slot in one step: one for each run of stages that need the chunk. It is
/// uploaded a stage ahead, so that a single stage without it is no end of a run.
constexpr std::uint32_t runs_of(chunk::chunk const& c, step const& s) {
  std::vector<std::uint8_t> used(std::size_t{2} * s.blocks, 0);
  for (block_id const b : c.blocks) {
    used[b.index()] = 1;
    used[2 * s.blocks - 1 - b.value] = 1;
  }
  std::uint32_t runs = 0;
  std::size_t unused = 2;  // stages since the last use; enough at first
  for (std::uint32_t m = 0; m < s.micro_batches; ++m) {
    for (std::uint8_t const here : used) {
      runs += here != 0 && unused > 1 ? 1U : 0U;
      unused = here != 0 ? 0 : unused + 1;
    }
  }
  return runs;
}

constexpr void add_cells(placed& out, trace::trace const& t) {
  using schedule::norm_cell_bytes;
  using schedule::scalars_bytes;
  std::uint64_t const pair = granules(norm_cell_bytes) + granules(scalars_bytes);
  out.device_carried += out.device_norms ? granules(norm_cell_bytes) : 0;
  out.device_carried += out.device_scalars ? granules(scalars_bytes) : 0;
  std::uint64_t const losses = checked_mul(checked_mul(t.job.micro_batch, 4), t.job.accumulate);
  out.host_carried += pair + granules(schedule::report_bytes) +
                      (out.device_norms ? granules(norm_cell_bytes) : 0) +
                      (t.job.world > 1 ? granules(checked_mul(norm_cell_bytes, t.job.world)) : 0) +
                      granules(checked_mul(t.batch.value, t.job.accumulate)) +
                      granules(checked_mul(losses, t.job.world));
}

/// True when a streamed chunk's gradient comes up from the host.
constexpr bool stored_on_host(placed const& p, step const& s, std::size_t c) {
  return s.chunks[c].stored || p.deferred[c] != 0;
}

/// The copies of a streamed chunk's update; answers what a slot must hold.
constexpr std::uint64_t add_stream(placed& out, step const& s, std::size_t c, decided what) {
  bool const stored = stored_on_host(out, s, c);
  stream_cost const& cost = stored ? s.chunks[c].streamed_stored : s.chunks[c].streamed;
  out.device_scalars = true;
  bool const all = what == decided::all;
  out.device_norms = out.device_norms || (all && !stored);
  out.stream_up += cost.up;
  out.stream_down += cost.down;
  out.stream_waited += all && s.waits && out.deferred[c] == 0 ? cost.down : picoseconds{};
  return cost.slot;
}

/// The way of a chunk that moves; answers the bytes of its buffer, 0 if it takes none.
constexpr std::uint64_t add_upload(placed& out,
                                   chunk::layout const& l,
                                   step const& s,
                                   std::size_t c) {
  chunk_cost const& cost = s.chunks[c];
  if (l.chunks[c].elements == 0) {
    return 0;
  }
  bool const first = out.moving_oversize.empty() && out.largest.empty();
  out.shortest_upload = first ? cost.upload : std::min(out.shortest_upload, cost.upload);
  out.shortest_gather = first ? cost.gather : std::min(out.shortest_gather, cost.gather);
  if (l.chunks[c].oversize) {
    std::uint32_t const again = runs_of(l.chunks[c], s) - 1;
    out.moving_oversize.push_back(make_id<chunk_id>(c));
    out.uploads_oversize += cost.upload;
    out.uploads_oversize_again += cost.upload * again;
    out.gathers_oversize += cost.gather;
    out.gathers_oversize_again += cost.gather * again;
    return 0;
  }
  out.uploads += cost.upload;
  out.largest.push_back(cost.upload);
  out.gathers += cost.gather;
  out.longest.push_back(cost.gather);
  return cost.value;
}

/// A chunk that moves: where its update is, and what that adds to the host.
constexpr void add_moving(placed& out, step const& s, std::size_t c, decided what) {
  chunk_cost const& cost = s.chunks[c];
  out.host_carried = checked_add(out.host_carried, cost.value_shard + cost.states);
  if (!cost.updated || what == decided::persistence) {
    return;
  }
  bool const deferred = out.deferred[c] != 0;
  out.host_carried = checked_add(out.host_carried, deferred ? cost.store : std::uint64_t{0});
  if (out.streamed[c] != 0) {
    out.slot_bytes = std::max(out.slot_bytes, add_stream(out, s, c, what));
    return;
  }
  out.host_all += cost.norm_host + cost.update_host;
  if (deferred) {
    out.host_left += cost.update_host;
  } else if (s.waits && what == decided::all) {
    out.host_updates += cost.update_host;
  }
}

constexpr void add_chunks(placed& out, chunk::layout const& l, step const& s, decided what) {
  std::uint64_t largest = 0;
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    chunk_cost const& cost = s.chunks[c];
    if (out.persistent[c] != 0) {
      out.device_carried = checked_add(out.device_carried, cost.value + cost.states);
      out.device_updates = out.device_updates || cost.updated;
      out.device_scalars = out.device_scalars || cost.updated;
      out.device_norms = out.device_norms || cost.updated;
      out.device_updates_time += s.waits ? cost.update_device : picoseconds{};
      if (cost.updated) {
        bool const first = out.gathers_updated.value == 0;
        out.gathers_updated += cost.gather;
        out.shortest_updated = first ? cost.gather : std::min(out.shortest_updated, cost.gather);
      }
      continue;
    }
    add_moving(out, s, c, what);
    largest = std::max(largest, add_upload(out, l, s, c));
  }
  bool any = false;
  for (chunk_id const c : l.chunks_of.front()) {
    if (out.persistent[c.index()] == 0 && l[c].elements > 0) {
      picoseconds const gather = s.chunks[c.index()].gather;
      out.uploads_first += s.chunks[c.index()].upload;
      out.gather_first = any ? std::min(out.gather_first, gather) : gather;
      any = true;
    }
  }
  out.buffer_bytes = largest;
}

/// A block holds a buffer of each regular chunk that moves and that it uses.
constexpr void add_held(placed& out, trace::trace const& t, chunk::layout const& l) {
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    std::uint64_t buffers = 0;
    for (chunk_id const c : l.chunks_of[b]) {
      bool const moves = out.persistent[c.index()] == 0 && l[c].elements > 0;
      buffers += moves && !l[c].oversize ? 1U : 0U;
    }
    trace::block_shape const& shape = t.shapes[t.blocks[b].index()];
    out.held_forward += shape.forward * buffers;
    out.held_backward += shape.backward * buffers;
  }
}

/// Turns a list of times into sums of its n largest, n from 0.
constexpr void sum_largest(std::vector<picoseconds>& times) {
  std::ranges::sort(times, std::greater<>());
  picoseconds sum{};
  for (picoseconds& t : times) {
    picoseconds const mine = t;
    t = sum;
    sum += mine;
  }
  times.push_back(sum);
}

/// The first `defer` chunks that aren't persistent are deferred.
constexpr void choose_deferred(placed& out, step const& s, std::uint32_t defer) {
  for (std::size_t c = 0; c < s.chunks.size() && s.defers && out.defer < defer; ++c) {
    if (out.persistent[c] == 0 && s.chunks[c].updated) {
      out.deferred[c] = 1;
      ++out.defer;
    }
  }
}

constexpr stream_cost const& stream_of(placed const& p, step const& s, std::size_t c) {
  return stored_on_host(p, s, c) ? s.chunks[c].streamed_stored : s.chunks[c].streamed;
}

/// Ends of updates that were left over, on the host and streamed, from the last chunk to the first.
struct left_updates {
  picoseconds host{};
  picoseconds up{};
  picoseconds down{};

  /// Of chunk `c`; the one before it is next.
  constexpr picoseconds take(placed const& p, step const& s, std::size_t c) {
    if (p.streamed[c] == 0) {
      picoseconds const end = host;
      host = host - s.chunks[c].update_host;
      return end;
    }
    stream_cost const& cost = stream_of(p, s, c);
    picoseconds const end = std::max(up + cost.down_least, down + cost.up_least);
    up = up - cost.up;
    down = down - cost.down;
    return end;
  }
};

/// Values that were left over come up behind their updates, which follow each other in the order of
/// chunks at each site, as their first uploads do; the blocks from the first that uses a chunk on run
/// behind its upload. O(chunks + blocks).
constexpr void bound_left_forward(placed& out,
                                  trace::trace const& t,
                                  chunk::layout const& l,
                                  step const& s) {
  std::vector<picoseconds> from(t.blocks.size() + 1, picoseconds{});  // forward of these and later
  for (std::size_t b = t.blocks.size(); b-- > 0;) {
    from[b] = from[b + 1] + t.shapes[t.blocks[b].index()].forward;
  }
  left_updates left{.host = out.host_left};
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    if (out.deferred[c] != 0 && out.streamed[c] != 0) {
      left.up += stream_of(out, s, c).up;
      left.down += stream_of(out, s, c).down;
    }
  }
  picoseconds uploads{};  // of this chunk and the regular ones behind it
  for (std::size_t c = l.chunks.size(); c-- > 0;) {
    chunk_cost const& cost = s.chunks[c];
    bool const moves = out.persistent[c] == 0 && l.chunks[c].elements > 0;
    uploads += moves && !l.chunks[c].oversize ? cost.upload : picoseconds{};
    if (out.deferred[c] == 0) {
      continue;
    }
    picoseconds const updated = left.take(out, s, c);
    std::size_t const first = std::ranges::min(l.chunks[c].blocks).index();
    picoseconds const fed = l.chunks[c].oversize ? picoseconds{} : uploads + s.forward_last;
    out.left_forward = std::max(
        {out.left_forward, updated + cost.upload + cost.gather + from[first], updated + fed});
  }
}

}  // namespace protrain::inline v0::cost::detail
