// SPDX-License-Identifier: Apache-2.0
#pragma once
// The facts of a placement.

#include "protrain/chunk/layout.hpp"
#include "protrain/cost/detail/placed_chunks.hpp"
#include "protrain/cost/detail/placed_spans.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

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
