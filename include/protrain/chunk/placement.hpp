// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which chunks stay on the device for good: the placement policy.

#include "protrain/chunk/layout.hpp"

#include <concepts>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::chunk {

struct placement_tag {};

/// Chooses `n` persistent chunks. Laws (test/law/placement.hpp): one flag per chunk, min(n, chunks)
/// of them set; the choice for n + 1 contains the choice for n; equal inputs, equal answers.
template <class P>
concept placement_policy = std::regular<P> && std::same_as<typename P::policy_tag, placement_tag> &&
                           requires(P const& p, layout const& l, std::uint32_t n) {
                             { p.persistent(l, n) } -> std::same_as<std::vector<std::uint8_t>>;
                           };

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

}  // namespace protrain::inline v0::chunk
