// SPDX-License-Identifier: Apache-2.0
#pragma once
// Where a chunk is updated.

#include "protrain/core/config.hpp"

#include <concepts>
#include <cstdint>

namespace protrain::inline v0::update {

enum class site : std::uint8_t { gpu, cpu };

struct site_tag {};

/// Chooses the update site of a chunk from where it lives. Laws (test/law/update.hpp): a
/// persistent chunk updates on the GPU; equal inputs give equal answers.
template <class P>
concept site_policy = std::regular<P> && std::same_as<typename P::policy_tag, site_tag> &&
                      requires(P const& p, bool persistent) {
                        { p.choose(persistent) } noexcept -> std::same_as<site>;
                      };

/// The paper's: where the chunk lives.
struct gpu_if_persistent {
  using policy_tag = site_tag;
  constexpr site choose(bool persistent) const noexcept {
    return persistent ? site::gpu : site::cpu;
  }
  bool operator==(gpu_if_persistent const&) const = default;
};
static_assert(site_policy<gpu_if_persistent>);

}  // namespace protrain::inline v0::update
