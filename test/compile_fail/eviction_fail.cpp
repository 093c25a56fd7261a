// SPDX-License-Identifier: Apache-2.0
// compile refuses an eviction policy that didn't consent, may throw, or isn't comparable.
// expect: constraints not satisfied|no matching function|no type named .policy_tag
// expect: constraints not satisfied|no matching function|noexcept
// expect: constraints not satisfied|no matching function|equality_comparable

#include "protrain/schedule/compile.hpp"

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

bool try_it(protrain::trace::trace const& t,
            protrain::chunk::layout const& l,
            protrain::schedule::knobs const& k) {
  return protrain::schedule::compile(t, l, k, policy{}).has_value();
}
