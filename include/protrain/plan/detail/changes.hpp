// SPDX-License-Identifier: Apache-2.0
#pragma once
// What clamping made of a request.

#include "protrain/core/text.hpp"
#include "protrain/plan/parse.hpp"
#include "protrain/plan/plan.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

constexpr void note(std::vector<text>& changed,
                    std::string_view key,
                    std::optional<std::uint64_t> const& from,
                    std::uint64_t to) {
  if (!from || *from == to) {
    return;
  }
  text line(key);
  line += " ";
  line += *from;
  line += " -> ";
  line += to;
  changed.push_back(std::move(line));
}

constexpr void note_levels(std::vector<text>& changed, request const& r, numbers const& n) {
  bool same = true;
  for (std::size_t k = 0; k < trace::most_levels; ++k) {
    same = same && (!r.levels || (*r.levels)[k] == n.levels[k]);
  }
  if (same) {
    return;
  }
  text line("levels ");
  append_levels(line, *r.levels, trace::most_levels);
  line += " -> ";
  append_levels(line, n.levels, trace::most_levels);
  changed.push_back(std::move(line));
}

/// What clamping changed, as "persist 999 -> 12"; nothing for a fixed policy's name.
constexpr std::vector<text> changes(request const& r, numbers const& n) {
  std::vector<text> out{};
  if (r.named) {
    return out;
  }
  if (!r.listed) {
    note(out, "persist", r.persist, n.persist);
  }
  note(out, "buffer", r.buffer, n.buffer);
  note(out, "swap", r.swap, n.swap);
  note(out, "checkpoint", r.checkpoint, n.checkpoint);
  note(out, "interval", r.interval, n.interval);
  note(out, "chunk", r.chunk, n.chunk);
  note(out, "defer", r.defer, n.defer);
  note_levels(out, r, n);
  if (r.streamed.value_or(all_chunks) != all_chunks) {
    note(out, "streamed", r.streamed, n.streamed);
  }
  note(out, "slots", r.gradient_slots, n.gradient_slots);
  if (n.streamed > 0) {
    note(out, "streaming slots", r.streaming_slots, n.streaming_slots);
  }
  note(out, "unroll", r.unroll, n.unroll);
  return out;
}

}  // namespace protrain::inline v0::plan::detail
