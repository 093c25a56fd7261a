// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which resident chunk leaves its buffer: the eviction policy.

#include "protrain/core/ids.hpp"
#include "protrain/core/result.hpp"

#include <concepts>
#include <cstdint>
#include <span>

namespace protrain::inline v0::chunk {

inline constexpr std::uint32_t never = ~std::uint32_t{0};

/// A chunk in a buffer. Its numbers are positions in the program's sequence of stages.
struct resident {
  chunk_id id;
  std::uint32_t last_use = 0;  ///< when a block last ran with it; `never` since it came in
  std::uint32_t next_use = 0;  ///< `never` when the program doesn't use it again
  std::uint32_t arrived = 0;   ///< when it came in
  bool operator==(resident const&) const = default;
};

struct eviction_tag {};  // consent: matching a member name by accident is not enough

/// Chooses which chunk leaves a full tier. Laws (test/law/eviction.hpp): the index is inside `in`;
/// equal inputs give equal answers.
template <class P>
concept eviction_policy = std::regular<P> && std::same_as<typename P::policy_tag, eviction_tag> &&
                          requires(P const& p, std::span<resident const> in) {
                            { p.victim(in) } noexcept -> std::same_as<std::size_t>;
                          };

namespace detail {

/// The first position at which `key` is smallest.
constexpr std::size_t lowest(std::span<resident const> in, auto key) noexcept {
  std::size_t best = 0;
  for (std::size_t i = 1; i < in.size(); ++i) {
    best = key(in[i]) < key(in[best]) ? i : best;
  }
  return best;
}

}  // namespace detail

/// The paper's: chunks leave in the order they ran. What hasn't run since it came in leaves last.
struct execution_order {
  using policy_tag = eviction_tag;
  constexpr std::size_t victim(std::span<resident const> in) const noexcept {
    return detail::lowest(in, [](resident const& r) { return r.last_use; });
  }
  bool operator==(execution_order const&) const = default;
};
static_assert(eviction_policy<execution_order>);

/// Belady's: what is needed again last, or never, leaves first; of equals, what ran longest ago.
struct furthest_next_use {
  using policy_tag = eviction_tag;
  constexpr std::size_t victim(std::span<resident const> in) const noexcept {
    return detail::lowest(in, [](resident const& r) {
      return (std::uint64_t{never - r.next_use} << 32U) | r.last_use;
    });
  }
  bool operator==(furthest_next_use const&) const = default;
};
static_assert(eviction_policy<furthest_next_use>);

/// To compare: what was touched longest ago leaves, where coming in is a touch too.
struct least_recently_used {
  using policy_tag = eviction_tag;
  constexpr std::size_t victim(std::span<resident const> in) const noexcept {
    return detail::lowest(
        in, [](resident const& r) { return r.last_use == never ? r.arrived : r.last_use; });
  }
  bool operator==(least_recently_used const&) const = default;
};
static_assert(eviction_policy<least_recently_used>);

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
