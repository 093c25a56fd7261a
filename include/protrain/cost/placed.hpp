// SPDX-License-Identifier: Apache-2.0
#pragma once
// What persistence alone decides: bytes that are carried in each space, and work that belongs to
// the device's or the host's queues.

#include "protrain/chunk/layout.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

/// Streamed updates that start after a block's backward.
struct late_stream {
  block_id closes{};   ///< of the first; none: nothing is known
  picoseconds copies{};  ///< down, of them and later ones; what goes up may have gone before
};

struct placed {
  std::vector<std::uint8_t> persistent{};
  std::uint32_t fewest_buffers = 0;
  std::uint32_t most_buffers = 0;
  std::uint64_t buffer_bytes = 0;    ///< one buffer
  std::uint64_t slot_bytes = 0;      ///< one slot for parts of streamed chunks
  std::uint64_t device_carried = 0;  ///< without buffers and slots
  std::uint64_t host_carried = 0;
  bool device_updates = false;  ///< some chunk is updated where it lives on the device
  bool device_scalars = false;  ///< some chunk is updated on the device
  bool device_norms = false;    ///< some chunk's gradient is complete on the device
  std::uint32_t defer = 0;      ///< chunks whose updates are left to the next step
  std::vector<std::uint8_t> deferred{};
  std::vector<std::uint8_t> streamed{};
  picoseconds stream_up{};      ///< copies of streamed chunks
  picoseconds stream_down{};    ///< likewise
  picoseconds stream_waited{};  ///< of those down, after the norm
  std::array<late_stream, 4> late_streams{};  ///< some of those that follow backward passes
  picoseconds host_left{};      ///< updates that the step before left over
  picoseconds left_forward{};   ///< no first forward pass behind them ends before this
  picoseconds reduces{};        ///< reductions of one micro-batch
  block_id first_reduced{};     ///< first block whose end lets one start
  picoseconds last_reduced{};   ///< reductions that start after the last backward
  std::vector<chunk_id> moving_oversize{};

  picoseconds uploads{};                 ///< of every regular chunk that moves, once
  std::vector<picoseconds> largest{};    ///< sums of the n largest of these uploads
  picoseconds uploads_oversize{};        ///< of every oversize chunk that moves, once
  picoseconds uploads_oversize_again{};  ///< what the step repeats of them
  picoseconds uploads_first{};           ///< what block 0 needs
  picoseconds held_forward{};            ///< computing of one micro-batch, for each buffer in use
  picoseconds held_backward{};           ///< likewise, recomputing aside
  picoseconds gathers{};                 ///< of every regular chunk that moves, once
  std::vector<picoseconds> longest{};    ///< sums of the n longest of these gathers
  picoseconds gathers_oversize{};        ///< of every oversize chunk that moves, once
  picoseconds gathers_oversize_again{};  ///< what the step repeats of them
  picoseconds gather_first{};            ///< the shortest of what block 0 needs
  picoseconds shortest_upload{};         ///< of all of these
  picoseconds shortest_gather{};
  picoseconds offloads{};                ///< of one micro-batch
  picoseconds offloads_end{};            ///< of them, after the last backward
  block_id first_closed{};               ///< first block whose end lets an offload start
  picoseconds first_offload{};           ///< the shortest there
  picoseconds first_reduce{};            ///< likewise of what it waits for
  picoseconds reduce_end{};              ///< the same of the offloads after the last backward
  picoseconds host_every{};              ///< accumulation in one micro-batch
  picoseconds host_last{};               ///< host work for the last micro-batch's gradients
  block_id last_closed{};                ///< first block whose end lets the last offload start
  picoseconds host_end{};                ///< host work for what that one brings
  picoseconds device_before{};           ///< the device's own for gradients complete before those
  picoseconds host_updates{};            ///< updates that wait for the norm
  picoseconds host_all{};                ///< all of it in one step
  picoseconds device_every{};            ///< accumulation before the last backward ends
  picoseconds device_every_end{};        ///< accumulation after it
  picoseconds device_last{};             ///< the same two for the last micro-batch, with norms
  picoseconds device_last_end{};
  picoseconds device_norm_end{};  ///< of it, up to the last norm
  picoseconds device_reduce{};    ///< the shortest reduction that it waits for
  picoseconds gathers_updated{};  ///< of persistent values, after their updates
  picoseconds shortest_updated{};  ///< of them
  picoseconds device_around{};       ///< accumulation on one side or the other of that end
  picoseconds device_last_around{};  ///< the same for the last micro-batch, with norms
  bool host_ends = false;         ///< a moving chunk's gradient is complete with the last backward
  bool device_ends = false;       ///< a persistent chunk's is
  bool device_closes = false;     ///< a contribution to one is
  picoseconds device_updates_time{};  ///< updates that wait for the norm
};

/// How much of a placement is known. What isn't counts for nothing, so that a bound on the time
/// holds for every way to decide it.
enum class decided : std::uint8_t {
  persistence,  ///< but not where other chunks are updated
  sites,        ///< but not which updates are deferred
  all
};

namespace detail {

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

constexpr void add_host_span(placed& out, span_cost const& g, chunk_cost const& c, bool waits) {
  picoseconds const finish = c.norm_host + (waits ? picoseconds{} : c.update_host);
  picoseconds const work = g.accumulate_host + (g.last ? finish : picoseconds{});
  out.offloads += g.offload;
  if (!out.last_closed.valid() || g.closes <= out.last_closed) {
    // Offloads run one after the other: as gradients are complete, then in order of their chunks.
    out.last_closed = g.closes;
    out.host_end = work;
  }
  out.host_every += g.accumulate_host;
  out.host_last += work;
  if (!out.first_closed.valid() || g.closes > out.first_closed) {
    out.first_closed = g.closes;
    out.first_offload = g.offload;
    out.first_reduce = g.reduce;
  } else if (g.closes == out.first_closed) {
    out.first_offload = std::min(out.first_offload, g.offload);
    out.first_reduce = std::min(out.first_reduce, g.reduce);
  }
  if (g.closes.value == 0) {
    out.offloads_end += g.offload;
    out.reduce_end = out.host_ends ? std::min(out.reduce_end, g.reduce) : g.reduce;
    out.host_ends = true;
  }
}

/// What the device does for a contribution of the last micro-batch, once it is complete.
constexpr picoseconds device_work(span_cost const& g, chunk_cost const& c, bool waits) {
  picoseconds const finish = c.norm_device + (waits ? picoseconds{} : c.update_device);
  return g.accumulate_device + (g.last ? finish : picoseconds{});
}

/// Blocks that run between a gradient's end and the device's work on it, at most: over ranks, the
/// reduction is hidden behind one.
constexpr std::uint32_t device_lag(step const& s) noexcept { return s.ranks > 1 ? 1 : 0; }

constexpr void add_device_span(
    placed& out, span_cost const& g, chunk_cost const& c, bool waits, std::uint32_t lag) {
  picoseconds const work = device_work(g, c, waits);
  bool const end = g.closes.value == 0;
  if (!end && g.closes.value <= lag) {
    out.device_around += g.accumulate_device;
    out.device_last_around += work;
    return;
  }
  if (end) {
    bool const first = !out.device_closes;
    out.device_reduce = first ? g.reduce : std::min(out.device_reduce, g.reduce);
    out.device_closes = true;
  }
  if (end && g.last) {
    out.device_norm_end = out.device_last_end + g.accumulate_device + c.norm_device;
    out.device_ends = true;
  }
  (end ? out.device_every_end : out.device_every) += g.accumulate_device;
  (end ? out.device_last_end : out.device_last) += work;
}

}  // namespace detail

namespace detail {

/// Streamed updates of this step's gradients follow them: up to four of them with all that come later.
constexpr void add_late_streams(placed& out, step const& s) {
  struct entry {
    block_id closes{};
    std::size_t chunk = 0;
  };
  std::vector<entry> in{};
  for (span_cost const& g : s.spans) {
    std::size_t const c = g.chunk.index();
    if (g.last && out.streamed[c] != 0 && out.deferred[c] == 0) {
      in.push_back({g.closes, c});
    }
  }
  std::sort(in.begin(), in.end(), [](entry const& a, entry const& b) {
    return a.closes != b.closes ? a.closes < b.closes : a.chunk < b.chunk;
  });
  picoseconds down{};
  for (std::size_t i = 0; i < in.size(); ++i) {
    down += stream_of(out, s, in[i].chunk).down;
    bool const listed = i + 1 == in.size() || i == 0 || i == in.size() / 3 || i == 2 * in.size() / 3;
    if (listed) {
      std::size_t const at = i + 1 == in.size() ? 3 : i == 0 ? 0 : i == in.size() / 3 ? 1 : 2;
      out.late_streams[at] = {in[i].closes, down};
    }
  }
}

/// One contribution, where its gradient is completed.
constexpr void add_span(
    placed& out, step const& s, span_cost const& g, decided what, std::uint32_t lag) {
  std::size_t const at = g.chunk.index();
  chunk_cost const& c = s.chunks[at];
  out.reduces += g.reduce;
  out.first_reduced = out.first_reduced.valid() ? std::max(out.first_reduced, g.closes) : g.closes;
  out.last_reduced += g.closes.value == 0 ? g.reduce : picoseconds{};
  bool const streamed = out.streamed[at] != 0;
  if (out.persistent[at] != 0) {
    add_device_span(out, g, c, s.waits, lag);
  } else if (what == decided::persistence || (streamed && what == decided::sites)) {
    return;
  } else if (streamed && !stored_on_host(out, s, at)) {
    add_device_span(out, g, c, true, lag);  // the update is no work for the device alone
  } else {
    bool const later = s.waits || out.deferred[at] != 0 || streamed || what == decided::sites;
    out.host_all += g.accumulate_host * s.micro_batches;
    add_host_span(out, g, c, later);
  }
}

}  // namespace detail

/// How many updates to defer where nothing better is known: all of chunks that aren't persistent if
/// they wait for the norm, else as few as keep the CPU no longer than backward with the others.
constexpr std::uint32_t deferred_by_rule(trace::trace const& t,
                                         step const& s,
                                         std::vector<std::uint8_t> const& persistent,
                                         std::vector<std::uint8_t> const& streamed) {
  picoseconds backward{};
  for (shape_id const b : t.blocks) {
    backward += t.shapes[b.index()].backward * s.micro_batches;
  }
  auto const here = [&](std::size_t c) { return persistent[c] == 0 && s.chunks[c].updated; };
  picoseconds late{};
  for (std::size_t c = 0; c < s.chunks.size(); ++c) {
    late += here(c) && streamed[c] == 0 ? s.chunks[c].update_host : picoseconds{};
  }
  std::uint32_t out = 0;
  for (std::size_t c = 0; c < s.chunks.size() && s.defers; ++c) {
    if (!here(c)) {
      continue;
    }
    if (!s.waits && late <= backward) {
      break;
    }
    ++out;
    late = late - (streamed[c] == 0 ? s.chunks[c].update_host : picoseconds{});
  }
  return out;
}

/// The facts of `persistent` and of `streamed` (one flag per chunk each; none at all: none is).
/// Where updates may be deferred, `defer` says how many are; absent: a rule does. `what`: how much
/// of this counts.
/// O(chunks x blocks).
constexpr placed make_placed(trace::trace const& t,
                             chunk::layout const& l,
                             step const& s,
                             std::vector<std::uint8_t> persistent,
                             std::optional<std::uint32_t> defer = {},
                             std::vector<std::uint8_t> streamed = {},
                             decided what = decided::all) {
  placed out{.persistent = std::move(persistent), .streamed = std::move(streamed)};
  if (out.streamed.empty()) {
    out.streamed.assign(l.chunks.size(), 0);
  }
  out.deferred.assign(s.chunks.size(), 0);
  if (what == decided::all) {
    detail::choose_deferred(
        out, s, defer ? *defer : deferred_by_rule(t, s, out.persistent, out.streamed));
  }
  out.device_carried = s.staging;
  out.fewest_buffers = schedule::fewest_buffers(l, out.persistent);
  out.most_buffers = schedule::most_buffers(l, out.persistent);
  detail::add_chunks(out, l, s, what);
  detail::add_held(out, t, l);
  detail::sum_largest(out.largest);
  detail::sum_largest(out.longest);
  detail::add_cells(out, t);
  if (out.defer > 0) {
    detail::bound_left_forward(out, t, l, s);
  }
  if (what == decided::all) {
    detail::add_late_streams(out, s);
  }
  std::uint32_t const lag = detail::device_lag(s);
  for (span_cost const& g : s.spans) {
    detail::add_span(out, s, g, what, lag);
  }
  for (span_cost const& g : s.spans) {
    bool const before = out.persistent[g.chunk.index()] != 0 && out.first_closed.valid() &&
                        g.closes.value > out.first_closed.value + lag;
    out.device_before +=
        before ? detail::device_work(g, s.chunks[g.chunk.index()], s.waits) : picoseconds{};
  }
  return out;
}

}  // namespace protrain::inline v0::cost
