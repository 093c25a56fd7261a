// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many blocks are checkpointed and how many hold each save level: all combinations where they
// are few, else those of two kinds side by side, and the neighbours of one.

#include "protrain/activation/assignment.hpp"
#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/space.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Kinds of blocks that drop something: checkpointed, then levels from the deepest one.
inline constexpr std::size_t most_kinds = trace::most_levels + 1;
using kind_counts = std::array<std::uint32_t, most_kinds>;

/// What is open beside a number of swapped blocks.
struct kind_axes {
  std::array<axis, most_kinds> of{};
  std::uint32_t kinds = 1;
  std::uint32_t blocks = 0;  ///< to be divided among them

  constexpr bool open(std::size_t kind) const { return of[kind].low < of[kind].high; }
};

template <class Policies>
constexpr kind_axes kinds_beside(space_of<Policies> const& all, std::uint32_t swap) {
  kind_axes out{.kinds = 1 + all.depth, .blocks = all.free_blocks() - swap};
  out.of[0] = all.checkpoint_axis(swap);
  for (std::uint32_t k = 1; k <= all.depth; ++k) {
    out.of[1 + all.depth - k] = all.level_axis(k);
  }
  return out;
}

constexpr activation::counts counts_of(kind_counts const& n,
                                       std::uint32_t depth,
                                       std::uint32_t swap) {
  activation::counts out{.swap = swap, .checkpoint = n[0]};
  for (std::uint32_t k = 1; k <= depth; ++k) {
    out.levels[k - 1] = n[1 + depth - k];
  }
  return out;
}

constexpr std::uint32_t sum(kind_counts const& n) {
  std::uint32_t out = 0;
  for (std::uint32_t const one : n) {
    out += one;
  }
  return out;
}

/// At least as many as `all_counts` has, or more than `most`.
constexpr std::uint64_t count_all(kind_axes const& a, std::uint64_t most) {
  std::uint64_t out = 1;
  std::uint64_t open = 0;
  for (std::size_t i = 0; i < a.kinds && out <= most; ++i) {
    if (a.open(i)) {
      ++open;
      out = out * (a.blocks + open) / open;  // so many ways to divide the blocks among `open` + 1
    }
  }
  return out;
}

/// Every division of the blocks.
constexpr std::vector<kind_counts> all_counts(kind_axes const& a) {
  std::vector<kind_counts> out{kind_counts{}};
  for (std::size_t i = 0; i < a.kinds; ++i) {
    std::vector<kind_counts> next{};
    for (kind_counts n : out) {
      std::uint32_t const left = a.blocks - std::min(a.blocks, sum(n));
      std::uint32_t const high = a.open(i) ? std::min(a.of[i].high, left) : a.of[i].high;
      for (n[i] = a.of[i].low; n[i] <= high; ++n[i]) {
        next.push_back(n);
      }
    }
    out = std::move(next);
  }
  return out;
}

/// Divisions between two kinds, one of which may be the blocks that keep everything: where one
/// budget is short, the fastest mix has no third kind, up to a block. Every `stride`-th.
constexpr std::vector<kind_counts> mixed_counts(kind_axes const& a, std::uint32_t stride) {
  kind_counts fixed{};
  for (std::size_t i = 0; i < a.kinds; ++i) {
    fixed[i] = a.open(i) ? 0 : a.of[i].low;
  }
  std::uint32_t const left = a.blocks - std::min(a.blocks, sum(fixed));
  std::vector<kind_counts> out{fixed};
  for (std::size_t i = 0; i < a.kinds; ++i) {
    if (!a.open(i)) {
      continue;
    }
    for (std::uint32_t const n : values({0, std::min(left, a.of[i].high)}, stride)) {
      kind_counts one = fixed;
      one[i] = n;
      out.push_back(one);
      for (std::size_t k = i + 1; k < a.kinds; ++k) {
        if (a.open(k)) {
          kind_counts two = one;
          two[k] = std::min(left - n, a.of[k].high);
          out.push_back(two);
        }
      }
    }
  }
  return out;
}

/// Levels of the neighbours of `at`, itself included, at distance `reach` in each; only itself
/// where levels are not searched.
template <class Policies>
constexpr std::vector<activation::counts> level_neighbours(space_of<Policies> const& all,
                                                           activation::counts const& at,
                                                           std::uint32_t reach,
                                                           bool searched) {
  std::vector<activation::counts> out{at};
  for (std::uint32_t k = 1; searched && k <= all.depth; ++k) {
    std::vector<activation::counts> next{};
    for (activation::counts c : out) {
      for (std::uint32_t const n : around(at.levels[k - 1], all.level_axis(k), reach)) {
        c.levels[k - 1] = n;
        next.push_back(c);
      }
    }
    out = std::move(next);
  }
  return out;
}

}  // namespace protrain::inline v0::plan::detail
