// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which chunks stay on the device for good: the placement policy.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/units.hpp"

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::chunk {

struct placement_tag {};

/// What it brings to keep a chunk on the device, in one step.
struct benefit {
  std::uint64_t bytes = 0;  ///< device memory that it takes: value, state, gradient store
  picoseconds saved{};      ///< copies and host updates that fall away
  bool operator==(benefit const&) const = default;
};

/// Optional capability: the policy weighs benefits, one per chunk.
template <class P>
concept weighs_benefits =
    requires(P const& p, layout const& l, std::span<benefit const> of, std::uint32_t n) {
      { p.persistent(l, of, n) } -> std::same_as<std::vector<std::uint8_t>>;
    };

/// Chooses `n` persistent chunks. Laws (test/law/placement.hpp): one flag per chunk, min(n, chunks)
/// of them set; the choice for n + 1 contains the choice for n; equal inputs, equal answers.
template <class P>
concept placement_policy =
    std::regular<P> && std::same_as<typename P::policy_tag, placement_tag> &&
    (weighs_benefits<P> || requires(P const& p, layout const& l, std::uint32_t n) {
      { p.persistent(l, n) } -> std::same_as<std::vector<std::uint8_t>>;
    });

namespace detail {

/// In place of any argument.
struct anything {
  template <class T>
  operator T&() const;  // NOLINT(google-explicit-constructor): that is its purpose
};

/// Takes benefits in some shape in which it would never be asked.
template <class P>
inline constexpr bool has_wrong_weighing =
    requires(P& p, anything a) { p.persistent(a, a, a); } && !weighs_benefits<P>;

}  // namespace detail

/// The policy's choice. `of` has one entry per chunk.
template <placement_policy P>
constexpr std::vector<std::uint8_t> persistent_of(P const& policy,
                                                  layout const& l,
                                                  std::span<benefit const> of,
                                                  std::uint32_t n) {
  static_assert(!detail::has_wrong_weighing<P>,
                "placement law: a policy that weighs benefits has std::vector<std::uint8_t> "
                "persistent(chunk::layout const&, std::span<chunk::benefit const>, std::uint32_t) "
                "const; laws: protrain/chunk/placement.hpp");
  if constexpr (weighs_benefits<P>) {
    PROTRAIN_EXPECT(of.size() == l.chunks.size(), "one benefit per chunk");
    return policy.persistent(l, of, n);
  } else {
    return policy.persistent(l, n);
  }
}

/// The paper's: the first `n` in execution order, whose prefetch can't hide in forward and whose
/// CPU update can't hide in backward.
struct persist_first {
  using policy_tag = placement_tag;
  constexpr std::vector<std::uint8_t> persistent(layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t c = 0; c < out.size(); ++c) {
      out[c] = c < n ? 1 : 0;
    }
    return out;
  }
  bool operator==(persist_first const&) const = default;
};
static_assert(placement_policy<persist_first>);

/// The last `n` in execution order: their gradients come first in backward, so that without them
/// the copies to the host start later.
struct persist_last {
  using policy_tag = placement_tag;
  constexpr std::vector<std::uint8_t> persistent(layout const& l, std::uint32_t n) const {
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t c = 0; c < out.size(); ++c) {
      out[c] = out.size() - c <= n ? 1 : 0;
    }
    return out;
  }
  bool operator==(persist_last const&) const = default;
};
static_assert(placement_policy<persist_last>);

/// The `n` that save the most time per byte of device memory, the first of equals: frozen chunks,
/// which have no state, and chunks that several blocks use come before the others.
struct persist_by_benefit {
  using policy_tag = placement_tag;
  constexpr std::vector<std::uint8_t> persistent(layout const& l,
                                                 std::span<benefit const> of,
                                                 std::uint32_t n) const {
    std::vector<std::uint32_t> order{};
    order.reserve(of.size());
    for (std::uint32_t c = 0; c < of.size(); ++c) {
      order.push_back(c);
    }
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
      return better(of[a], of[b]) || (!better(of[b], of[a]) && a < b);
    });
    std::vector<std::uint8_t> out(l.chunks.size(), 0);
    for (std::size_t i = 0; i < order.size() && i < n; ++i) {
      out[order[i]] = 1;
    }
    return out;
  }
  bool operator==(persist_by_benefit const&) const = default;

 private:
  /// More saved per byte, in exact arithmetic. What takes no bytes comes first.
  static constexpr bool better(benefit const& a, benefit const& b) {
    __extension__ using wide = unsigned __int128;
    if (a.bytes == 0 || b.bytes == 0) {
      return a.bytes == 0 && b.bytes != 0;
    }
    return static_cast<wide>(a.saved.value) * b.bytes > static_cast<wide>(b.saved.value) * a.bytes;
  }
};
static_assert(placement_policy<persist_by_benefit>);

}  // namespace protrain::inline v0::chunk
