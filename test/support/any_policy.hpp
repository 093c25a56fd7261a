// SPDX-License-Identifier: Apache-2.0
#pragma once
// The shipped models of a role behind one type, chosen by number: tests that draw the policy
// instantiate planning once.

#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::test {

inline constexpr std::uint32_t eviction_kinds = 3;
inline constexpr std::uint32_t placement_kinds = 3;

struct any_eviction {
  using policy_tag = chunk::eviction_tag;
  std::uint32_t kind = 0;  ///< 0: the default of a bundle

  constexpr std::size_t victim(std::span<chunk::resident const> in) const noexcept {
    switch (kind) {
      case 0:
        return chunk::execution_order{}.victim(in);
      case 1:
        return chunk::furthest_next_use{}.victim(in);
      default:
        return chunk::least_recently_used{}.victim(in);
    }
  }
  bool operator==(any_eviction const&) const = default;
};
static_assert(chunk::eviction_policy<any_eviction>);

struct any_placement {
  using policy_tag = chunk::placement_tag;
  std::uint32_t kind = 0;  ///< 0: the default of a bundle

  constexpr std::vector<std::uint8_t> persistent(chunk::layout const& l,
                                                 std::span<chunk::benefit const> of,
                                                 std::uint32_t n) const {
    switch (kind) {
      case 0:
        return chunk::persist_first{}.persistent(l, n);
      case 1:
        return chunk::persist_last{}.persistent(l, n);
      default:
        return chunk::persist_by_benefit{}.persistent(l, of, n);
    }
  }
  bool operator==(any_placement const&) const = default;
};
static_assert(chunk::placement_policy<any_placement>);

}  // namespace protrain::test
