// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a search begins: promising plans of several kinds, so that what it finds early is good.

#include "protrain/plan/detail/axes.hpp"
#include "protrain/plan/detail/decisions.hpp"
#include "protrain/plan/space.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace protrain::inline v0::plan::detail {

/// Works on the results of a `searcher`, with its frontier.
template <class Search, class Frontier>
class scout {
 public:
  constexpr scout(Search& s, Frontier& open) : s_(s), open_(open) {}

  /// Of some persistences and some ways to update the most promising candidates, then what lies
  /// around the best of each kind: none deferred, some deferred, least kept, some streamed.
  constexpr void run() {
    std::vector<std::vector<candidate>> found(4);
    auto const last = static_cast<std::uint32_t>(s_.space_.persistences.size()) - 1;
    for (std::uint32_t const base : values({0, last}, last / scouted + 1)) {
      axis const streamed = s_.left_ > 0 ? s_.space_.streamed_axis(base) : axis{};
      for (std::uint32_t const n : values(streamed, (streamed.high - streamed.low) / 4 + 1)) {
        bool const split = n > streamed.low;
        std::size_t const at = s_.space_.placement(base, n);
        look(at, found[split ? 3 : 1]);
        axis const defer = s_.space_.defer_axis(base, n);
        if (!split && s_.space_.placed_as[at].defer > defer.low) {
          look(s_.space_.placement(base, n, defer.low), found[0]);
        }
        if (auto const c = split ? std::nullopt : open_.leanest_of(at)) {
          found[2].push_back(*c);
        }
      }
    }
    for (std::vector<candidate>& kind : found) {
      climb_from(kind);
    }
    if (s_.best_ != Search::none) {
      s_.climb(s_.best_, s_.limits_.refinements);
    }
  }

 private:
  constexpr void look(std::size_t placement, std::vector<candidate>& found) {
    s_.programs_.take_placements();
    if (auto const c = open_.best_of(placement)) {
      found.push_back(*c);
    }
  }
  /// Compiles the most promising, and climbs from the best of them.
  constexpr void climb_from(std::vector<candidate>& found) {
    s_.sort(found);
    std::vector<std::size_t> starts{};
    for (std::size_t i = 0; i < std::min<std::size_t>(found.size(), scouted / 2); ++i) {
      if (s_.may_compile(~std::size_t{0})) {
        std::size_t const at = s_.evaluate(found[i]);
        if (s_.order_.fits(s_.programs_.results()[at])) {
          starts.push_back(at);
        }
      }
    }
    std::sort(starts.begin(), starts.end(), [this](std::size_t a, std::size_t b) {
      return s_.order_.before(s_.programs_.results()[a], s_.programs_.results()[b]);
    });
    for (std::size_t i = 0; i < std::min<std::size_t>(starts.size(), climbed); ++i) {
      s_.climb(starts[i], s_.limits_.refinements / 2);
    }
  }

  static constexpr std::uint32_t scouted = 16;  ///< persistences, and candidates of them
  static constexpr std::uint32_t climbed = 3;   ///< of these

  Search& s_;
  Frontier& open_;
};

}  // namespace protrain::inline v0::plan::detail
