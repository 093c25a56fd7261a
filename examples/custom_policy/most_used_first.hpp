// SPDX-License-Identifier: Apache-2.0
#pragma once
// A placement policy of a user: chunks that more blocks use stay on the device first.

#include "protrain/chunk/layout.hpp"
#include "protrain/chunk/placement.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace custom {

/// The more blocks use a chunk, the more often it would be uploaded: a tied embedding serves the
/// first block and the last. Of equals the first in execution order. Chunks above `largest` elements
/// come last: one of them takes the place of many.
struct most_used_first {
  using policy_tag = protrain::chunk::placement_tag;
  std::uint64_t largest = ~std::uint64_t{0};

  constexpr std::vector<std::uint8_t> persistent(protrain::chunk::layout const& l,
                                                 std::uint32_t n) const {
    std::vector<std::uint32_t> order;
    order.reserve(l.chunks.size());
    for (std::uint32_t c = 0; c < l.chunks.size(); ++c) {
      order.push_back(c);
    }
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      auto const uses = [&](std::uint32_t c) {
        return l.chunks[c].elements > largest ? 0 : l.chunks[c].blocks.size();
      };
      return uses(a) != uses(b) ? uses(a) > uses(b) : a < b;
    });
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t i = 0; i < order.size() && i < n; ++i) {
      out[order[i]] = 1;
    }
    return out;
  }
  bool operator==(most_used_first const&) const = default;
};
static_assert(protrain::chunk::placement_policy<most_used_first>);

}  // namespace custom
