// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which block gets which strategy: the assignment policy and its shipped models.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/ids.hpp"

#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::activation {

struct assignment_tag {};

/// The numbers a policy turns into an assignment. Blocks that are pinned don't count in them.
struct counts {
  std::uint32_t swap = 0;
  std::uint32_t checkpoint = 0;
  std::uint32_t interval = 1;  ///< a swapped block every `interval` blocks
  bool operator==(counts const&) const = default;
};

/// Gives each free block a strategy. Laws (test/law/assignment.hpp): the answer has one entry per
/// block; entries of pinned blocks are the pin; at most `counts.swap` free blocks are swapped and
/// at most `counts.checkpoint` are checkpointed; equal inputs give equal answers.
template <class P>
concept assignment_policy =
    std::regular<P> && std::same_as<typename P::policy_tag, assignment_tag> &&
    requires(P const& p, std::span<pin const> pins, counts const& c) {
      { p.assign(pins, c) } -> std::same_as<std::vector<strategy>>;
    };

namespace detail {

/// Pinned entries set, free ones kept.
constexpr std::vector<strategy> start(std::span<pin const> pins) {
  std::vector<strategy> out{};
  for (pin const p : pins) {
    out.push_back(p == pin::free ? strategy::keep : pinned(p));
  }
  return out;
}

}  // namespace detail

/// The paper's layout: of the free blocks, counted from 0, those at 0, interval, 2 * interval, ...
/// are swapped until `counts.swap` are; the first `counts.checkpoint` of the rest are
/// checkpointed; what remains is kept.
struct interleaved {
  using policy_tag = assignment_tag;
  constexpr std::vector<strategy> assign(std::span<pin const> pins, counts const& c) const {
    PROTRAIN_EXPECT(c.interval > 0, "the swap interval is at least 1");
    std::vector<strategy> out = detail::start(pins);
    std::uint64_t free = 0;
    std::uint32_t swapped = 0;
    std::uint32_t checkpointed = 0;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      if (pins[b] != pin::free) {
        continue;
      }
      if (swapped < c.swap && free % c.interval == 0) {
        out[b] = strategy::swap;
        ++swapped;
      } else if (checkpointed < c.checkpoint) {
        out[b] = strategy::checkpoint;
        ++checkpointed;
      }
      ++free;
    }
    return out;
  }
  bool operator==(interleaved const&) const = default;
};
static_assert(assignment_policy<interleaved>);

/// Every free block keeps its saved tensors, whatever the counts.
struct keep_all {
  using policy_tag = assignment_tag;
  constexpr std::vector<strategy> assign(std::span<pin const> pins, counts const&) const {
    return detail::start(pins);
  }
  bool operator==(keep_all const&) const = default;
};
static_assert(assignment_policy<keep_all>);

/// The first `counts.checkpoint` free blocks are checkpointed, nothing is swapped: with the count
/// at its maximum, checkpoint everything.
struct checkpoint_all {
  using policy_tag = assignment_tag;
  constexpr std::vector<strategy> assign(std::span<pin const> pins, counts const& c) const {
    return interleaved{}.assign(pins, {.swap = 0, .checkpoint = c.checkpoint, .interval = 1});
  }
  bool operator==(checkpoint_all const&) const = default;
};
static_assert(assignment_policy<checkpoint_all>);

/// Free blocks of a job, i.e. the largest useful `counts.checkpoint`.
constexpr std::uint32_t free_blocks(std::span<pin const> pins) noexcept {
  std::uint32_t n = 0;
  for (pin const p : pins) {
    n += p == pin::free ? 1U : 0U;
  }
  return n;
}

/// The pins of a trace, one per block.
constexpr std::vector<pin> pins_of(trace::trace const& t) {
  std::vector<pin> out{};
  out.reserve(t.blocks.size());
  for (shape_id const s : t.blocks) {
    out.push_back(t.shapes[s.index()].pinned);
  }
  return out;
}

}  // namespace protrain::inline v0::activation
