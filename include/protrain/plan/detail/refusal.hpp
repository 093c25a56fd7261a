// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the compiler says about a policy that fits no role: the one that its tag names, and what
// that asks for.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <concepts>

namespace protrain::inline v0::plan::detail {

/// P's tag says that it plays this role.
template <class P, class Tag>
inline constexpr bool plays = false;
template <class P, class Tag>
  requires std::same_as<typename P::policy_tag, Tag>
inline constexpr bool plays<P, Tag> = true;

/// Fails to compile, with the law and the cure.
template <class P>
constexpr void refuse_policy() {
  if constexpr (plays<P, chunk::placement_tag>) {
    static_assert(
        chunk::placement_policy<P>,
        "policies::with: a placement policy is regular (default, copies, ==) and has "
        "std::vector<std::uint8_t> persistent(chunk::layout const&, std::uint32_t) const, or with "
        "std::span<chunk::benefit const> between the two; laws: protrain/chunk/placement.hpp");
  } else if constexpr (plays<P, chunk::sizing_tag>) {
    static_assert(chunk::sizing_policy<P>,
                  "policies::with: a sizing policy is regular (default, copies, ==) and has "
                  "std::vector<std::uint64_t> capacities(trace::trace const&) const; laws: "
                  "protrain/chunk/sizing.hpp");
  } else if constexpr (plays<P, chunk::eviction_tag>) {
    static_assert(chunk::eviction_policy<P>,
                  "policies::with: an eviction policy is regular (default, copies, ==) and has "
                  "std::size_t victim(std::span<chunk::resident const>) const noexcept; laws: "
                  "protrain/chunk/eviction.hpp");
  } else if constexpr (plays<P, activation::assignment_tag>) {
    static_assert(activation::assignment_policy<P>,
                  "policies::with: an assignment policy is regular (default, copies, ==) and has "
                  "std::vector<activation::strategy> assign(std::span<activation::pin const>, "
                  "activation::counts const&) const; laws: protrain/activation/assignment.hpp");
  } else if constexpr (plays<P, link::bandwidth_tag>) {
    static_assert(link::bandwidth_policy<P>,
                  "policies::with: a bandwidth policy is regular (default, copies, ==) and has "
                  "bandwidth rate(hw::machine const&, link::channel) const noexcept; laws: "
                  "protrain/link/bandwidth.hpp");
  } else if constexpr (plays<P, update::site_tag>) {
    static_assert(update::site_policy<P>,
                  "policies::with: a site policy is regular (default, copies, ==) and has "
                  "std::uint32_t most_streamed(std::uint32_t) const noexcept and update::site "
                  "choose(update::site_facts const&) const noexcept; laws: "
                  "protrain/update/site.hpp");
  } else if constexpr (plays<P, update::timing_tag>) {
    static_assert(update::timing_policy<P>,
                  "policies::with: a timing policy is regular (default, copies, ==) and has "
                  "update::timing choose(model::job const&) const noexcept; laws: "
                  "protrain/update/timing.hpp");
  } else if constexpr (plays<P, update::state_format_tag>) {
    static_assert(update::state_format_policy<P>,
                  "policies::with: a state format is regular (default, copies, ==) and has static "
                  "constants format, value_bytes and state_bytes; laws: "
                  "protrain/update/state_format.hpp");
  } else {
    static_assert(plays<P, P>,
                  "policies::with: no policy. Its policy_tag is one of chunk::placement_tag, "
                  "sizing_tag and eviction_tag, activation::assignment_tag, link::bandwidth_tag, "
                  "update::site_tag, timing_tag and state_format_tag; the roles: "
                  "protrain/core/customization.hpp");
  }
}

}  // namespace protrain::inline v0::plan::detail
