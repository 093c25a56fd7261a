// SPDX-License-Identifier: Apache-2.0
#pragma once
// What gradients bring to a placement: work behind the passes that they come from.

#include "protrain/cost/detail/placed_chunks.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/step.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::cost::detail {

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
  std::ranges::sort(in, [](entry const& a, entry const& b) {
    return a.closes != b.closes ? a.closes < b.closes : a.chunk < b.chunk;
  });
  std::vector<picoseconds> down{};  // of each and all that come later
  for (entry const& e : in) {
    picoseconds const before = down.empty() ? picoseconds{} : down.back();
    down.push_back(before + stream_of(out, s, e.chunk).down);
  }
  for (std::size_t k = 0; k < out.late_streams.size() && !in.empty(); ++k) {
    std::size_t const at = (in.size() - 1) * k / (out.late_streams.size() - 1);
    out.late_streams[k] = {in[at].closes, down[at]};
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

}  // namespace protrain::inline v0::cost::detail
