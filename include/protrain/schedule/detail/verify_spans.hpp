// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify, fourth part: the spans cut every chunk's gradient into contributions, each use of each
// tensor in exactly one.

#include "protrain/chunk/layout.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"
#include "protrain/trace/trace.hpp"

#include <cstdint>
#include <limits>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// A span as seen from one of its blocks.
struct span_use {
  std::uint32_t span = 0;
  std::uint32_t position = 0;  ///< of the block in gradient_span::blocks
};

/// The span table by block and by chunk.
struct span_index {
  std::vector<std::uint32_t> first{};  ///< by block: where its uses start; one more at the end
  std::vector<span_use> uses{};        ///< by block, ascending chunks
  std::vector<std::uint32_t> spans{};  ///< by chunk: how many
  verdict valid{};
};

/// Checks the table and builds the index. O(blocks + uses of tensors x spans of their chunk).
class span_checker {
 public:
  constexpr span_checker(program const& p, trace::trace const& t, chunk::layout const& l)
      : p_(p),
        t_(t),
        l_(l),
        stamp_(t.blocks.size(), 0),
        seen_(t.parameters.size(), 0),
        covered_(l.chunks.size(), 0),
        previous_(l.chunks.size(), std::numeric_limits<std::uint32_t>::max()) {
    out_.spans = std::vector<std::uint32_t>(l.chunks.size(), 0);
    out_.first = std::vector<std::uint32_t>(t.blocks.size() + 1, 0);
  }

  constexpr span_index run() {
    for (std::uint32_t s = 0; s < p_.spans.size(); ++s) {
      gradient_span const& g = p_.spans[s];
      if (g.chunk.index() >= l_.chunks.size() || !l_[g.chunk].trainable ||
          l_[g.chunk].elements == 0 || (s > 0 && g.chunk < p_.spans[s - 1].chunk)) {
        return refuse("a span of a wrong chunk", s);
      }
      if (g.ordinal != out_.spans[g.chunk.index()]++ || !take_blocks(s) || !take_tensors(g)) {
        return refuse("a span of wrong blocks or tensors", s);
      }
    }
    for (std::size_t c = 0; c < l_.chunks.size(); ++c) {
      if (covered_[c] != wanted(l_.chunks[c])) {
        return refuse("a use of a tensor in no span", c);
      }
    }
    index();
    return std::move(out_);
  }

 private:
  constexpr span_index refuse(char const* what, std::size_t which) const {
    return {.valid = reject(rejection::malformed, what, verdict::nowhere, which)};
  }

  /// Blocks run backward, also from one span of a chunk to its next.
  constexpr bool take_blocks(std::uint32_t s) {
    gradient_span const& g = p_.spans[s];
    for (block_id const b : g.blocks) {
      std::uint32_t& before = previous_[g.chunk.index()];
      if (b.index() >= stamp_.size() || b.value >= before) {
        return false;
      }
      before = b.value;
      stamp_[b.index()] = s + 1;
      ++out_.first[b.index()];
    }
    current_ = s + 1;
    return !g.blocks.empty();
  }

  /// Every tensor has exactly one use among the span's blocks, and knows if it is its first.
  constexpr bool take_tensors(gradient_span const& g) {
    chunk::chunk const& c = l_[g.chunk];
    std::uint32_t next = 0;
    for (span_tensor const& st : g.tensors) {
      if (st.tensor < next || st.tensor >= c.tensors.size()) {
        return false;
      }
      next = st.tensor + 1;
      std::size_t const parameter = c.tensors[st.tensor].parameter.index();
      std::uint32_t uses = 0;
      for (block_id const b : t_.parameters[parameter].uses) {
        uses += stamp_[b.index()] == current_ ? 1U : 0U;
      }
      if (uses != 1 || st.first != (seen_[parameter] == 0)) {
        return false;
      }
      seen_[parameter] = 1;
      covered_[g.chunk.index()] += c.tensors[st.tensor].elements > 0 ? 1U : 0U;
    }
    return true;
  }

  constexpr std::uint64_t wanted(chunk::chunk const& c) const {
    std::uint64_t sum = 0;
    for (chunk::placed_tensor const& p : c.tensors) {
      sum += c.trainable && p.elements > 0 ? t_.parameters[p.parameter.index()].uses.size() : 0;
    }
    return sum;
  }

  /// Counting sort of the spans by block.
  constexpr void index() {
    std::uint32_t sum = 0;
    for (std::uint32_t& f : out_.first) {
      sum += f;
      f = sum;
    }
    out_.uses = std::vector<span_use>(sum, span_use{});
    for (std::size_t s = p_.spans.size(); s-- > 0;) {
      for (std::size_t k = 0; k < p_.spans[s].blocks.size(); ++k) {
        std::uint32_t const at = --out_.first[p_.spans[s].blocks[k].index()];
        out_.uses[at] = {static_cast<std::uint32_t>(s), static_cast<std::uint32_t>(k)};
      }
    }
  }

  program const& p_;
  trace::trace const& t_;
  chunk::layout const& l_;
  std::vector<std::uint32_t> stamp_;     // by block: 1 + the last span it is in
  std::vector<std::uint8_t> seen_;       // by parameter
  std::vector<std::uint64_t> covered_;   // by chunk: uses in spans
  std::vector<std::uint32_t> previous_;  // by chunk: the last block in a span
  std::uint32_t current_ = 0;
  span_index out_{};
};

}  // namespace protrain::inline v0::schedule::detail
