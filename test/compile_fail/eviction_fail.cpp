// SPDX-License-Identifier: Apache-2.0
// evict_one refuses an eviction policy that didn't consent, may throw, or isn't comparable.
// expect: no type named .policy_tag.
// expect: noexcept|may throw an exception
// expect: equality_comparable|__t == __u

#include "protrain/chunk/eviction.hpp"

#include <cstddef>
#include <span>

namespace {

struct policy {
#if FAULT_ON != 1
  using policy_tag = protrain::chunk::eviction_tag;
#endif
  constexpr std::size_t victim(std::span<protrain::chunk::resident const>) const
#if FAULT_ON != 2
      noexcept
#endif
  {
    return 0;
  }
#if FAULT_ON != 3
  bool operator==(policy const&) const = default;
#endif
};

}  // namespace

bool try_it(std::span<protrain::chunk::resident const> in) {
  return protrain::chunk::evict_one(policy{}, in).has_value();
}
