// SPDX-License-Identifier: Apache-2.0
#pragma once
// The space as a tree: persistence, then which updates are streamed, then which are deferred, then
// everything else. A branch is opened when its bound is below a limit that rises.

#include "protrain/core/units.hpp"
#include "protrain/cost/lower_bound.hpp"
#include "protrain/cost/placed.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/detail/assignment_groups.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

namespace protrain::inline v0::plan::detail {

inline constexpr picoseconds no_time_is_longer{std::numeric_limits<std::uint64_t>::max()};

/// Yields candidates that may fit, a slice of bounds at a time. Branches that no memory is enough for
/// are left out.
template <class Policies>
class frontier {
 public:
  constexpr frontier(space_of<Policies>& all,
                     evaluator<Policies>& programs,
                     assignment_groups<Policies> const& groups,
                     allowance const& allowed,
                     std::uint64_t& bounds)
      : space_(all), programs_(programs), groups_(groups), allowed_(allowed), left_(bounds) {
    for (std::size_t base = 0; base < space_.persistences.size(); ++base) {
      cost::placed const p = space_.persistent_only(base);
      if (auto const bound = bound_of(p)) {
        bases_.push_back({.base = base, .bound = *bound});
      }
    }
  }

  /// No candidate that was not yielded yet has a bound below this.
  constexpr picoseconds next() const {
    return std::min({floor_of(bases_), floor_of(splits_), floor_of(roots_)});
  }

  /// Candidates with bounds in (`above`, `limit`], or from 0 where `above` is absent. Nothing when
  /// there are too many to look at.
  constexpr std::optional<std::vector<candidate>> slice(std::optional<picoseconds> above,
                                                        picoseconds limit) {
    above_ = above;
    limit_ = limit;
    out_.clear();
    open(bases_, [this](branch const& b) { open_base(b); });
    open(splits_, [this](branch const& b) { open_split(b); });
    for (branch& root : roots_) {
      if (root.bound <= limit_ && left_ > 0) {
        root.bound = collect(root.placement);
      }
    }
    if (left_ == 0) {
      return std::nullopt;
    }
    return std::move(out_);
  }

  /// The candidate of a placement that keeps least, with as many buffers as fit; nothing if none does.
  constexpr std::optional<candidate> leanest_of(std::size_t placement) {
    cost::placed const& p = space_.placements[placement];
    std::size_t least = space_.assignments.size();
    for (assignment_group const& g : groups_.all()) {
      bool const less = least == space_.assignments.size() ||
                        g.live.front() < space_.assignments[least].most_live;
      least = less ? g.members.front() : least;
    }
    cost::assigned const& a = space_.assignments[least];
    candidate c{.placement = static_cast<std::uint32_t>(placement),
                .assignment = static_cast<std::uint32_t>(least),
                .buffers = roomy_buffers(p, a, space_.buffer_axis(p)),
                .slots = slots_of(placement).high};
    c.bound = cost::lower_bound(space_.step, p, a, c.buffers);
    c.least = programs_.least_memory(c);
    return fits(c) ? std::optional<candidate>(c) : std::nullopt;
  }

  /// The most promising candidate of a placement; nothing if none fits.
  constexpr std::optional<candidate> best_of(std::size_t placement) {
    cost::placed const& p = space_.placements[placement];
    std::optional<candidate> best{};
    for_groups(p, [&](assignment_group const& g, std::size_t n, picoseconds least) {
      for (std::size_t i = 0; i < n && (!best || least < best->bound); ++i) {
        cost::assigned const& a = space_.assignments[g.members[i]];
        axis const buffers = space_.buffer_axis(p);
        std::uint32_t const b = roomy_buffers(p, a, buffers);
        picoseconds const bound = cost::lower_bound(space_.step, p, a, b);
        spend(1);
        if (!best || bound < best->bound) {
          candidate c{.placement = static_cast<std::uint32_t>(placement),
                      .assignment = static_cast<std::uint32_t>(g.members[i]),
                      .buffers = b,
                      .slots = slots_of(placement).high,
                      .bound = bound};
          c.least = programs_.least_memory(c);
          best = fits(c) ? c : best;
        }
      }
    });
    return best;
  }

 private:
  struct branch {
    std::size_t base = 0;
    std::uint32_t streamed = 0;
    std::size_t placement = 0;
    picoseconds bound{};
  };

  static constexpr picoseconds floor_of(std::vector<branch> const& list) {
    picoseconds out = no_time_is_longer;
    for (branch const& b : list) {
      out = std::min(out, b.bound);
    }
    return out;
  }

  constexpr void spend(std::uint64_t bounds) { left_ -= std::min(left_, bounds); }

  constexpr std::optional<picoseconds> bound_of(cost::placed const& p) {
    spend(groups_.all().size());
    return p.host_carried > allowed_.host ? std::nullopt : groups_.bound(p, allowed_.device);
  }

  /// Replaces the branches of `list` that the limit allows by what `each` makes of them.
  template <class Each>
  constexpr void open(std::vector<branch>& list, Each const& each) {
    std::vector<branch> const before = std::move(list);
    list = {};
    for (branch const& b : before) {
      if (b.bound <= limit_ && left_ > 0) {
        each(b);
      } else {
        list.push_back(b);
      }
    }
  }

  constexpr void open_base(branch const& b) {
    axis const streamed = space_.streamed_axis(b.base);
    for (std::uint32_t n = streamed.low; n <= streamed.high; ++n) {
      if (auto const bound = bound_of(space_.undeferred(b.base, n))) {
        splits_.push_back({.base = b.base, .streamed = n, .bound = std::max(*bound, b.bound)});
      }
    }
  }
  constexpr void open_split(branch const& b) {
    axis const defer = space_.defer_axis(b.base, b.streamed);
    for (std::uint32_t n = defer.low; n <= defer.high; ++n) {
      std::size_t const at = space_.placement(b.base, b.streamed, n);
      if (auto const bound = bound_of(space_.placements[at])) {
        roots_.push_back({.placement = at, .bound = std::max(*bound, b.bound)});
      }
    }
    programs_.take_placements();
  }

  /// `each` group that has members that may fit: how many, and no bound of theirs is less.
  template <class Each>
  constexpr void for_groups(cost::placed const& p, Each const& each) {
    std::uint64_t const taken = cost::carried_bytes(p, p.fewest_buffers, 0);
    for (assignment_group const& g : groups_.all()) {
      std::size_t const n = taken > allowed_.device ? 0 : g.within(allowed_.device - taken);
      if (n > 0) {
        std::uint32_t const most = groups_.buffers_within(p, allowed_.device - g.live.front());
        spend(1);
        each(g, n, cost::lower_bound(space_.step, p, g.least[n - 1], most));
      }
    }
  }

  constexpr std::uint32_t roomy_buffers(cost::placed const& p,
                                        cost::assigned const& a,
                                        axis const& buffers) const {
    std::uint64_t const room = allowed_.device - std::min(allowed_.device, a.most_live);
    return clamp(groups_.buffers_within(p, room), buffers.low, buffers.high);
  }
  constexpr axis slots_of(std::size_t placement) const {
    return space_.placed_as[placement].streamed > 0 ? space_.streaming_slot_axis : axis{};
  }
  constexpr bool fits(candidate const& c) const {
    return c.least.device <= allowed_.device && c.least.host <= allowed_.host;
  }

  /// Candidates of one placement; answers the least bound of those above the limit.
  constexpr picoseconds collect(std::size_t placement) {
    picoseconds above = no_time_is_longer;
    for_groups(space_.placements[placement],
               [&](assignment_group const& g, std::size_t n, picoseconds least) {
                 above = least > limit_ ? std::min(above, least) : above;
                 for (std::size_t i = 0; i < n && least <= limit_ && left_ > 0; ++i) {
                   above = std::min(above, collect(placement, g.members[i]));
                 }
               });
    return above;
  }

  /// With as many buffers as fit, then fewer: the fewer, the larger the bound.
  constexpr picoseconds collect(std::size_t placement, std::size_t assignment) {
    cost::placed const& p = space_.placements[placement];
    cost::assigned const& a = space_.assignments[assignment];
    axis const buffers = space_.buffer_axis(p);
    for (std::uint32_t b = roomy_buffers(p, a, buffers) + 1; b-- > buffers.low;) {
      candidate c{.placement = static_cast<std::uint32_t>(placement),
                  .assignment = static_cast<std::uint32_t>(assignment),
                  .buffers = b,
                  .bound = cost::lower_bound(space_.step, p, a, b)};
      spend(1);
      if (c.bound > limit_) {
        return c.bound;
      }
      if (!above_ || c.bound > *above_) {
        add(c);
      }
    }
    return no_time_is_longer;
  }

  constexpr void add(candidate c) {
    axis const slots = slots_of(c.placement);
    for (c.slots = slots.low; c.slots <= slots.high; ++c.slots) {
      c.least = programs_.least_memory(c);
      if (fits(c)) {
        out_.push_back(c);
      }
    }
  }

  space_of<Policies>& space_;
  evaluator<Policies>& programs_;
  assignment_groups<Policies> const& groups_;
  allowance allowed_;
  std::uint64_t& left_;  ///< bounds that may be computed
  std::vector<branch> bases_{};
  std::vector<branch> splits_{};
  std::vector<branch> roots_{};
  std::optional<picoseconds> above_{};
  picoseconds limit_{};
  std::vector<candidate> out_{};
};

}  // namespace protrain::inline v0::plan::detail
