// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which resident chunk leaves its buffer: the eviction policy.

#include "protrain/core/ids.hpp"
#include "protrain/core/result.hpp"

#include <concepts>
#include <cstdint>
#include <span>

namespace protrain::inline v0::chunk {

/// A chunk in a buffer. `last_use` and `next_use` are positions in the step's sequence of stages;
/// `next_use` is `never` when the step doesn't use it again.
struct resident {
  chunk_id id;
  std::uint32_t last_use = 0;
  std::uint32_t next_use = 0;
  bool operator==(resident const&) const = default;
};
inline constexpr std::uint32_t never = ~std::uint32_t{0};

struct eviction_tag {};  // consent: matching a member name by accident is not enough

/// Chooses which chunk leaves a full tier. Laws (test/law/eviction.hpp): the index is inside `in`;
/// equal inputs give equal answers.
template <class P>
concept eviction_policy = std::regular<P> && std::same_as<typename P::policy_tag, eviction_tag> &&
                          requires(P const& p, std::span<resident const> in) {
                            { p.victim(in) } noexcept -> std::same_as<std::size_t>;
                          };

/// The paper's: chunks leave in the order they ran.
struct execution_order {
  using policy_tag = eviction_tag;
  constexpr std::size_t victim(std::span<resident const> in) const noexcept {
    std::size_t best = 0;
    for (std::size_t i = 1; i < in.size(); ++i) {
      best = in[i].last_use < in[best].last_use ? i : best;
    }
    return best;
  }
  bool operator==(execution_order const&) const = default;
};
static_assert(eviction_policy<execution_order>);

/// The victim's position in `in`, checked against the law.
template <eviction_policy P>
constexpr result<std::size_t> evict_one(P const& policy, std::span<resident const> in) {
  if (in.empty()) {
    return error{errc::nothing_to_evict, "no resident chunk can leave", 0};
  }
  std::size_t const i = policy.victim(in);
  PROTRAIN_EXPECT(i < in.size(), "eviction law: index outside the resident set");
  return i;
}

}  // namespace protrain::inline v0::chunk
