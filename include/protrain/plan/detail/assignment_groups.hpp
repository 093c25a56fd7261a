// SPDX-License-Identifier: Apache-2.0
#pragma once
// Assignments in groups, so that a bound discards many of them at once.

#include "protrain/core/units.hpp"
#include "protrain/cost/assigned.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Assignments that swap equally many blocks. Those that fit into some memory are the first so many.
struct assignment_group {
  std::vector<std::size_t> members{};   ///< positions in space_of::assignments, by bytes live
  std::vector<std::uint64_t> live{};    ///< of each
  std::vector<cost::assigned> least{};  ///< none of the first n + 1 is cheaper in any respect

  /// How many need no more than `room`.
  constexpr std::size_t within(std::uint64_t room) const {
    return static_cast<std::size_t>(std::ranges::upper_bound(live, room) - live.begin());
  }
};

template <class Policies>
class assignment_groups {
 public:
  explicit constexpr assignment_groups(space_of<Policies> const& all) : space_(all) {}

  constexpr std::vector<assignment_group> const& all() const { return groups_; }

  /// Those of the space from now on; earlier ones are forgotten.
  constexpr void gather(std::vector<std::size_t> const& assignments) {
    groups_.clear();
    std::vector<std::size_t> in = assignments;
    std::sort(in.begin(), in.end(), [this](std::size_t a, std::size_t b) {
      return std::tuple(space_.counts[a].swap, space_.assignments[a].most_live, a) <
             std::tuple(space_.counts[b].swap, space_.assignments[b].most_live, b);
    });
    for (std::size_t const a : in) {
      bool const another = groups_.empty() || space_.counts[groups_.back().members.back()].swap !=
                                                  space_.counts[a].swap;
      if (another) {
        groups_.emplace_back();
      }
      add(groups_.back(), a);
    }
  }

  /// No plan of this placement whose device holds no more than `room` is faster; nothing if there
  /// is none.
  constexpr std::optional<picoseconds> bound(cost::placed const& p, std::uint64_t room) const {
    std::uint64_t const taken = cost::carried_bytes(p, p.fewest_buffers, 0);
    std::optional<picoseconds> out{};
    for (assignment_group const& g : groups_) {
      std::size_t const n = taken > room ? 0 : g.within(room - taken);
      if (n == 0) {
        continue;
      }
      std::uint32_t const most = buffers_within(p, room - g.live.front());
      picoseconds const here = cost::lower_bound(space_.step, p, g.least[n - 1], most);
      out = out ? std::min(*out, here) : here;
    }
    return out;
  }

  /// Buffers of a placement that fit into `room`, at least as many as it needs.
  static constexpr std::uint32_t buffers_within(cost::placed const& p, std::uint64_t room) {
    std::uint32_t const most = std::max(p.fewest_buffers, p.most_buffers);
    if (p.buffer_bytes == 0 || room <= p.device_carried) {
      return p.buffer_bytes == 0 ? most : p.fewest_buffers;
    }
    std::uint64_t const n = (room - p.device_carried) / p.buffer_bytes;
    return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(n, p.fewest_buffers, most));
  }

 private:
  constexpr void add(assignment_group& g, std::size_t a) {
    cost::assigned const& of = space_.assignments[a];
    cost::assigned least{.swap_out = of.swap_out, .swap_in = of.swap_in, .backward = of.backward};
    if (!g.least.empty()) {
      cost::cheapen(least, g.least.back());
    }
    g.members.push_back(a);
    g.live.push_back(of.most_live);
    g.least.push_back(std::move(least));
  }

  space_of<Policies> const& space_;
  std::vector<assignment_group> groups_{};
};

}  // namespace protrain::inline v0::plan::detail
