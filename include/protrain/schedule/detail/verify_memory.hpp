// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify, second part: allocations are aligned, inside the budgets, never overlap while both are
// live, are listed in the order in which they are taken, and are given back.

#include "protrain/core/math.hpp"
#include "protrain/schedule/detail/verify_tables.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/schedule/verdict.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

/// First byte after an allocation; only for allocations that check_allocation accepted.
constexpr std::uint64_t end_of(allocation const& a) { return a.offset + granules(a.bytes); }

/// One allocation's own fields, for a program of `n` instructions.
constexpr verdict check_allocation(allocation const& a, std::size_t index, std::uint32_t n) {
  if (a.where > space::host || a.what >= category::padding || a.begin >= a.end || a.begin > n ||
      a.bytes == 0 || a.bytes > most_bytes / 2 || a.offset > most_bytes / 4 ||
      a.offset % address_granule != 0) {
    return reject(rejection::malformed, "an impossible allocation", verdict::nowhere, index);
  }
  if (a.carried && (a.begin != 0 || a.end < n)) {
    return reject(rejection::malformed, "carried memory isn't live throughout", a.begin, index);
  }
  if (!a.carried && a.end > n) {
    return reject(rejection::leak, "memory stays live after the program", a.begin, index);
  }
  return {};
}

/// Live allocations of both spaces in order of address.
class live_set {
 public:
  explicit constexpr live_set(std::vector<allocation> const& all) : all_(all) {}

  /// The live allocation that `index` overlaps, or `index` itself, which is live from now on.
  constexpr std::uint32_t insert(std::uint32_t index) {
    allocation const& a = all_[index];
    std::vector<std::uint32_t>& live = of(a);
    std::size_t const at = lower(live, a.offset);
    if (at < live.size() && all_[live[at]].offset < end_of(a)) {
      return live[at];
    }
    if (at > 0 && end_of(all_[live[at - 1]]) > a.offset) {
      return live[at - 1];
    }
    live.insert(live.begin() + static_cast<std::ptrdiff_t>(at), index);
    return index;
  }
  constexpr void erase(std::uint32_t index) {
    std::vector<std::uint32_t>& live = of(all_[index]);
    std::size_t const at = lower(live, all_[index].offset);
    live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
  }

 private:
  constexpr std::vector<std::uint32_t>& of(allocation const& a) {
    return live_[static_cast<std::size_t>(a.where)];
  }
  /// Position of the first live allocation that doesn't start below `offset`.
  constexpr std::size_t lower(std::vector<std::uint32_t> const& live, std::uint64_t offset) const {
    std::size_t first = 0;
    std::size_t count = live.size();
    while (count > 0) {
      std::size_t const half = count / 2;
      bool const below = all_[live[first + half]].offset < offset;
      first = below ? first + half + 1 : first;
      count = below ? count - half - 1 : half;
    }
    return first;
  }

  std::vector<allocation> const& all_;
  // A vector: nvcc's constant evaluation leaks the elements of an array.
  std::vector<std::vector<std::uint32_t>> live_ =
      std::vector<std::vector<std::uint32_t>>(space_count, std::vector<std::uint32_t>{});
};

/// Allocations in the order in which they begin.
constexpr std::vector<std::uint32_t> sorted_by_begin(std::vector<allocation> const& all) {
  std::vector<std::uint32_t> order{};
  order.reserve(all.size());
  bool sorted = true;
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    sorted = sorted && (i == 0 || all[i - 1].begin <= all[i].begin);
    order.push_back(i);
  }
  if (!sorted) {
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return all[a].begin != all[b].begin ? all[a].begin < all[b].begin : a < b;
    });
  }
  return order;
}

/// In the order in which they end; those that outlive the program's `n` instructions are last.
constexpr std::vector<std::uint32_t> sorted_by_end(std::vector<allocation> const& all,
                                                   std::uint32_t n) {
  auto const key = [n](allocation const& a) { return std::size_t{a.end > n ? n + 1 : a.end}; };
  std::vector<std::uint32_t> next(std::size_t{n} + 3, 0);  // by end: its first place
  for (allocation const& a : all) {
    ++next[key(a) + 1];
  }
  for (std::size_t k = 1; k < next.size(); ++k) {
    next[k] += next[k - 1];
  }
  std::vector<std::uint32_t> order(all.size(), 0);
  for (std::uint32_t i = 0; i < all.size(); ++i) {
    order[next[key(all[i])]++] = i;
  }
  return order;
}

/// No two allocations that are live at one of `n` positions share a byte.
constexpr verdict check_overlaps(std::vector<allocation> const& all, std::uint32_t n) {
  std::vector<std::uint32_t> const begins = sorted_by_begin(all);
  std::vector<std::uint32_t> const ends = sorted_by_end(all, n);
  live_set live(all);
  std::size_t ended = 0;
  for (std::uint32_t const i : begins) {
    for (; all[ends[ended]].end <= all[i].begin; ++ended) {
      live.erase(ends[ended]);
    }
    if (std::uint32_t const hit = live.insert(i); hit != i) {
      return reject(rejection::overlap, "memory handed out twice", all[i].begin, hit);
    }
  }
  return {};
}

/// Allocations begin in the order of their table: it is the order in which they are taken.
constexpr verdict check_taking_order(program const& p) {
  for (std::size_t i = 1; i < p.allocations.size(); ++i) {
    if (p.allocations[i].begin < p.allocations[i - 1].begin) {
      return reject(rejection::malformed,
                    "memory listed behind what is taken later",
                    p.allocations[i].begin,
                    i);
    }
  }
  return {};
}

/// Sizes, places and lives, and the budgets in bytes.
constexpr verdict check_memory(program const& p,
                               std::uint64_t device_budget,
                               std::uint64_t host_budget) {
  auto const n = static_cast<std::uint32_t>(p.instructions.size());
  std::array<std::uint64_t, space_count> const budget{device_budget, host_budget};
  for (std::size_t i = 0; i < p.allocations.size(); ++i) {
    allocation const& a = p.allocations[i];
    if (verdict const v = check_allocation(a, i, n); !v) {
      return v;
    }
    if (end_of(a) > budget[static_cast<std::size_t>(a.where)]) {
      return reject(rejection::over_budget,
                    a.where == space::device ? "the device budget is too small"
                                             : "the host budget is too small",
                    a.begin,
                    i);
    }
  }
  return check_overlaps(p.allocations, n);
}

}  // namespace protrain::inline v0::schedule::detail
