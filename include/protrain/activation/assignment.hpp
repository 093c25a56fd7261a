// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which block gets which strategy: the assignment policy and its shipped models.

#include "protrain/activation/strategy.hpp"
#include "protrain/core/ids.hpp"
#include "protrain/trace/trace.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace protrain::inline v0::activation {

struct assignment_tag {};

/// The numbers a policy turns into an assignment. Blocks that are pinned don't count in them.
struct counts {
  std::uint32_t swap = 0;
  std::uint32_t checkpoint = 0;
  std::uint32_t interval = 1;  ///< a swapped block every `interval` blocks
  std::array<std::uint32_t, trace::most_levels> levels{};  ///< blocks at save level 1, 2, ...
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

/// Also places save levels on blocks that are kept; `depths` are the numbers of levels that blocks
/// have. Laws (test/law/assignment.hpp): one entry per block; 0 for a block that is pinned or not
/// kept, and at most its depth; at most `counts.levels[k - 1]` blocks are at level k; equal inputs
/// give equal answers.
template <class P>
concept level_policy = assignment_policy<P> && requires(P const& p,
                                                        std::span<pin const> pins,
                                                        std::span<std::uint8_t const> depths,
                                                        counts const& c) {
  { p.save_levels(pins, depths, c) } -> std::same_as<std::vector<std::uint8_t>>;
};

namespace detail {

/// A member of that name which isn't one, and would never be asked.
template <class P>
inline constexpr bool has_wrong_save_levels = requires { &P::save_levels; } && !level_policy<P>;

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

/// The first `counts.swap` free blocks are swapped, whatever the interval: they wait longest for
/// their backward, so that their copies have the most time. The first `counts.checkpoint` of the
/// rest are checkpointed; what remains is kept.
struct swap_first {
  using policy_tag = assignment_tag;
  constexpr std::vector<strategy> assign(std::span<pin const> pins, counts const& c) const {
    return interleaved{}.assign(pins, {.swap = c.swap, .checkpoint = c.checkpoint, .interval = 1});
  }
  bool operator==(swap_first const&) const = default;
};
static_assert(assignment_policy<swap_first>);

/// Swapping and checkpointing as `interleaved`; of the blocks that remain, the first are at the
/// deepest level, then come shallower ones, and the last keep everything. What a block rebuilds is
/// there beside all that earlier blocks still hold, so the block that drops most should be one
/// whose backward runs late, when those have been freed: an early one. A block without some level
/// takes the next shallower one that it has and that still has a count.
struct levels {
  using policy_tag = assignment_tag;
  constexpr std::vector<strategy> assign(std::span<pin const> pins, counts const& c) const {
    return interleaved{}.assign(pins, c);
  }
  constexpr std::vector<std::uint8_t> save_levels(std::span<pin const> pins,
                                                  std::span<std::uint8_t const> depths,
                                                  counts const& c) const {
    PROTRAIN_EXPECT(pins.size() == depths.size(), "one depth per block");
    std::vector<strategy> const how = assign(pins, c);
    std::vector<std::uint8_t> out(pins.size(), 0);
    std::array<std::uint32_t, trace::most_levels> left = c.levels;
    for (std::size_t b = 0; b < pins.size(); ++b) {
      PROTRAIN_EXPECT(depths[b] <= trace::most_levels, "a block has at most four levels");
      bool const free = pins[b] == pin::free && how[b] == strategy::keep;
      for (std::uint8_t k = free ? depths[b] : std::uint8_t{0}; k > 0; --k) {
        if (left[k - 1U] > 0) {
          --left[k - 1U];
          out[b] = k;
          break;
        }
      }
    }
    return out;
  }
  bool operator==(levels const&) const = default;
};
static_assert(level_policy<levels>);

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

/// By block: how many save levels it has.
constexpr std::vector<std::uint8_t> depths_of(trace::trace const& t) {
  std::vector<std::uint8_t> out{};
  out.reserve(t.blocks.size());
  for (shape_id const s : t.blocks) {
    out.push_back(static_cast<std::uint8_t>(t.shapes[s.index()].levels.size()));
  }
  return out;
}

/// What a policy makes of counts.
struct assignment {
  std::vector<strategy> strategies{};
  std::vector<std::uint8_t> levels{};  ///< empty if every block is at level 0
  bool operator==(assignment const&) const = default;
};

/// Strategies, and levels if the policy places them.
template <assignment_policy P>
constexpr assignment assign(P const& policy,
                            std::span<pin const> pins,
                            std::span<std::uint8_t const> depths,
                            counts const& c) {
  assignment out{.strategies = policy.assign(pins, c)};
  PROTRAIN_EXPECT(out.strategies.size() == pins.size(), "assignment law: one strategy per block");
  static_assert(
      !detail::has_wrong_save_levels<P>,
      "assignment law: a policy that places levels has std::vector<std::uint8_t> "
      "save_levels(std::span<activation::pin const>, std::span<std::uint8_t const> depths, "
      "activation::counts const&) const; laws: protrain/activation/assignment.hpp");
  if constexpr (level_policy<P>) {
    std::vector<std::uint8_t> at = policy.save_levels(pins, depths, c);
    PROTRAIN_EXPECT(at.size() == pins.size(), "assignment law: one level per block");
    bool any = false;
    for (std::uint8_t const k : at) {
      any = any || k > 0;
    }
    if (any) {
      out.levels = std::move(at);
    }
  }
  return out;
}

}  // namespace protrain::inline v0::activation
