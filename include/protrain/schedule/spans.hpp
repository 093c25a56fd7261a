// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which backward passes share a gradient slot.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule {

namespace detail {

/// The tensors of `c` that block `b` uses, as positions in the chunk, ascending.
constexpr std::vector<std::uint32_t> tensors_used(trace::trace const& t,
                                                  chunk::chunk const& c,
                                                  block_id b) {
  std::vector<std::uint32_t> out;
  for (std::size_t i = 0; i < c.tensors.size(); ++i) {
    auto const& uses = t.parameters[c.tensors[i].parameter.index()].uses;
    if (c.tensors[i].elements > 0 && std::ranges::find(uses, b) != uses.end()) {
      out.push_back(static_cast<std::uint32_t>(i));
    }
  }
  return out;
}

constexpr bool has_repeated_tensor(trace::trace const& t, chunk::chunk const& c) {
  return std::ranges::any_of(c.tensors, [&](chunk::placed_tensor const& p) {
    return p.elements > 0 && t.parameters[p.parameter.index()].uses.size() > 1;
  });
}

/// Spans of one chunk in backward order. A chunk without tied tensors has one. With them, a span
/// ends where the next block would use a tensor again, or isn't adjacent (so that no slot lives
/// from the head down to the embedding).
constexpr void add_spans(std::vector<gradient_span>& out,
                         trace::trace const& t,
                         chunk::layout const& l,
                         chunk_id id) {
  chunk::chunk const& c = l[id];
  bool const tied = has_repeated_tensor(t, c);
  std::vector<std::uint8_t> seen(c.tensors.size(), 0);     // in this step's micro-batch
  std::vector<std::uint8_t> in_span(c.tensors.size(), 0);  // in the open span
  std::uint32_t ordinal = 0;
  bool open = false;
  for (std::size_t k = c.blocks.size(); k-- > 0;) {
    block_id const b = c.blocks[k];
    std::vector<std::uint32_t> const used = tensors_used(t, c, b);
    if (used.empty()) {
      continue;
    }
    bool const again = std::ranges::any_of(used, [&](std::uint32_t i) { return in_span[i] != 0; });
    bool const gap = open && tied && out.back().blocks.back().value != b.value + 1;
    if (!open || again || gap) {
      out.push_back({.chunk = id, .ordinal = ordinal++});
      std::ranges::fill(in_span, std::uint8_t{0});
      open = true;
    }
    out.back().blocks.push_back(b);
    for (std::uint32_t const i : used) {
      out.back().tensors.push_back({i, seen[i] == 0});
      seen[i] = 1;
      in_span[i] = 1;
    }
  }
}

}  // namespace detail

/// All spans of a job: those of chunk 0 first, each chunk's in backward order.
constexpr std::vector<gradient_span> make_spans(trace::trace const& t, chunk::layout const& l) {
  std::vector<gradient_span> out;
  for (std::size_t c = 0; c < l.chunks.size(); ++c) {
    if (l.chunks[c].trainable && l.chunks[c].elements > 0) {
      detail::add_spans(out, t, l, make_id<chunk_id>(c));
    }
  }
  for (gradient_span& s : out) {
    std::ranges::sort(
        s.tensors, [](span_tensor const& a, span_tensor const& b) { return a.tensor < b.tensor; });
  }
  return out;
}

/// What all programs of a trace and a layout share: a search that compiles many makes it once.
struct prepared {
  std::uint64_t fingerprint = 0;  ///< of the trace
  std::vector<gradient_span> spans{};
  std::vector<std::vector<std::uint32_t>> of_block{};  ///< spans that each block contributes to
};

/// O(parameters + blocks).
constexpr prepared prepare(trace::trace const& t, chunk::layout const& l) {
  prepared out{.fingerprint = trace::fingerprint(t), .spans = make_spans(t, l)};
  out.of_block.assign(t.blocks.size(), std::vector<std::uint32_t>{});
  for (std::uint32_t s = 0; s < out.spans.size(); ++s) {
    for (block_id const b : out.spans[s].blocks) {
      out.of_block[b.index()].push_back(s);
    }
  }
  return out;
}

}  // namespace protrain::inline v0::schedule
