// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a search does where nothing has been found to fit: look for the plan that lacks least.

#include "protrain/cost/assigned.hpp"
#include "protrain/plan/detail/evaluator.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Works on the results of a `searcher`.
template <class Search>
class least_search {
 public:
  explicit constexpr least_search(Search& s) : s_(s) {}

  /// Compiles the smallest candidates until one fits, or none of the rest can lack less than the
  /// best so far. Answers the position of the one that lacks least.
  constexpr std::size_t run() {
    list();
    std::sort(
        candidates_.begin(), candidates_.end(), [this](candidate const& a, candidate const& b) {
          return std::tuple(need(a.least), s_.order_.key(a)) <
                 std::tuple(need(b.least), s_.order_.key(b));
        });
    for (std::size_t i = 0; i < results().size(); ++i) {
      note(i);
    }
    std::size_t const programs = results().size() + std::size_t{4} * s_.limits_.refinements;
    for (candidate const& c : candidates_) {
      cost::live_bytes const least = s_.programs_.least_memory(c);
      cost::live_bytes const best = extents(least_);
      if (s_.best_ != Search::none || results().size() >= programs || lack(c.least) > lack(best)) {
        break;
      }
      if (need(least) < need(best)) {
        note(s_.evaluate(c));
      }
    }
    return least_;
  }

 private:
  constexpr std::vector<scored> const& results() const { return s_.programs_.results(); }
  constexpr cost::live_bytes extents(std::size_t at) const {
    return {results()[at].device, results()[at].host};
  }

  constexpr std::uint64_t lack(cost::live_bytes const& n) const {
    auto const over = [](std::uint64_t needs, std::uint64_t has) {
      return needs > has ? needs - has : 0;
    };
    return checked_add(over(n.device, s_.order_.allowed.device),
                       over(n.host, s_.order_.allowed.host));
  }
  constexpr auto need(cost::live_bytes const& n) const {
    return std::tuple(lack(n), n.device, n.host);
  }
  constexpr void note(std::size_t at) {
    if (least_ == Search::none || need(extents(at)) < need(extents(least_))) {
      least_ = at;
    }
  }

  /// Assignments that no other beats in both spaces.
  constexpr std::vector<std::size_t> smallest() const {
    std::vector<std::size_t> in{};
    for (assignment_group const& g : s_.groups_.all()) {
      in.insert(in.end(), g.members.begin(), g.members.end());
    }
    auto const size = [this](std::size_t a) {
      cost::assigned const& of = s_.space_.assignments[a];
      return std::tuple(of.swapped, of.most_live, a);
    };
    std::sort(in.begin(), in.end(), [&](auto a, auto b) { return size(a) < size(b); });
    std::vector<std::size_t> out{};
    for (std::size_t const a : in) {
      bool const smaller = out.empty() || s_.space_.assignments[a].most_live <
                                              s_.space_.assignments[out.back()].most_live;
      if (smaller || all()) {
        out.push_back(a);
      }
    }
    return out;
  }

  /// The fewest buffers and slots; of the updates none deferred and all or none streamed, unless
  /// there are few ways.
  constexpr void list() {
    std::vector<std::size_t> const assignments = smallest();
    for (std::size_t base = 0; base < s_.space_.persistences.size(); ++base) {
      axis const streamed = s_.space_.streamed_axis(base);
      for (std::uint32_t n = streamed.low; n <= streamed.high; ++n) {
        axis const defer = s_.space_.defer_axis(base, n);
        bool const end = n == streamed.low || n == streamed.high;
        for (std::uint32_t d = defer.low; d <= defer.high; ++d) {
          if (all() || (end && d == defer.low)) {
            list(s_.space_.placement(base, n, d), assignments);
          }
        }
      }
    }
  }
  constexpr void list(std::size_t placement, std::vector<std::size_t> const& assignments) {
    std::uint32_t const buffers = s_.space_.buffer_axis(s_.space_.placements[placement]).low;
    for (std::size_t const a : assignments) {
      candidates_.push_back(s_.bounded(placement, a, buffers, s_.space_.streaming_slot_axis.low));
    }
  }

  /// Where they are so few that all of them can be looked at.
  constexpr bool all() const {
    std::size_t assignments = 0;
    for (assignment_group const& g : s_.groups_.all()) {
      assignments += g.members.size();
    }
    std::size_t const n = s_.space_.persistences.size();
    return n <= few && assignments <= few * few && assignments * n <= most;
  }
  static constexpr std::size_t few = 24;
  static constexpr std::size_t most = 1U << 14U;

  Search& s_;
  std::vector<candidate> candidates_{};
  std::size_t least_ = Search::none;
};

}  // namespace protrain::inline v0::plan::detail
