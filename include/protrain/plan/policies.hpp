// SPDX-License-Identifier: Apache-2.0
#pragma once
// One policy per role, composed at compile time.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/plan/detail/refusal.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <concepts>
#include <utility>

namespace protrain::inline v0::plan {

/// The state format is part of the job; naming one in a bundle makes planning refuse jobs with
/// another. This one takes the job's.
struct format_of_job {
  bool operator==(format_of_job const&) const = default;
};

template <class P>
concept format_choice = update::state_format_policy<P> || std::same_as<P, format_of_job>;

/// A bundle of policies. Callers change one with `with(policy)`: its role says what it replaces.
template <chunk::placement_policy Placement = chunk::persist_first,
          chunk::sizing_policy Sizing = chunk::uniform_grid,
          chunk::eviction_policy Eviction = chunk::execution_order,
          activation::assignment_policy Assignment = activation::interleaved,
          link::bandwidth_policy Bandwidth = link::shared,
          update::site_policy Site = update::cpu_or_streamed,
          update::timing_policy Timing = update::before_next_use,
          format_choice Format = format_of_job>
struct policies {
  [[no_unique_address]] Placement placement{};
  [[no_unique_address]] Sizing sizing{};
  [[no_unique_address]] Eviction eviction{};
  [[no_unique_address]] Assignment assignment{};
  [[no_unique_address]] Bandwidth bandwidth{};
  [[no_unique_address]] Site site{};
  [[no_unique_address]] Timing timing{};
  [[no_unique_address]] Format format{};
  bool operator==(policies const&) const = default;

  template <chunk::placement_policy P>
  constexpr auto with(P p) const {
    return policies<P, Sizing, Eviction, Assignment, Bandwidth, Site, Timing, Format>{
        std::move(p), sizing, eviction, assignment, bandwidth, site, timing, format};
  }
  template <chunk::sizing_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, P, Eviction, Assignment, Bandwidth, Site, Timing, Format>{
        placement, std::move(p), eviction, assignment, bandwidth, site, timing, format};
  }
  template <chunk::eviction_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, P, Assignment, Bandwidth, Site, Timing, Format>{
        placement, sizing, std::move(p), assignment, bandwidth, site, timing, format};
  }
  template <activation::assignment_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, Eviction, P, Bandwidth, Site, Timing, Format>{
        placement, sizing, eviction, std::move(p), bandwidth, site, timing, format};
  }
  template <link::bandwidth_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, Eviction, Assignment, P, Site, Timing, Format>{
        placement, sizing, eviction, assignment, std::move(p), site, timing, format};
  }
  template <update::site_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, Eviction, Assignment, Bandwidth, P, Timing, Format>{
        placement, sizing, eviction, assignment, bandwidth, std::move(p), timing, format};
  }
  template <update::timing_policy P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, Eviction, Assignment, Bandwidth, Site, P, Format>{
        placement, sizing, eviction, assignment, bandwidth, site, std::move(p), format};
  }
  template <format_choice P>
  constexpr auto with(P p) const {
    return policies<Placement, Sizing, Eviction, Assignment, Bandwidth, Site, Timing, P>{
        placement, sizing, eviction, assignment, bandwidth, site, timing, std::move(p)};
  }
  /// What fits no role is refused with what it lacks.
  template <class P>
  constexpr policies with(P) const {
    detail::refuse_policy<P>();
    return *this;
  }
};

namespace detail {
template <class... P>
void takes_policies(policies<P...> const& bundle);
}  // namespace detail

/// A bundle, or a type that is derived from one.
template <class T>
concept policy_bundle = requires(T const& t) { detail::takes_policies(t); };
static_assert(policy_bundle<policies<>> && !policy_bundle<chunk::persist_first>);

/// Fails to compile where `T` is no bundle, with the cure.
template <class T>
constexpr bool require_bundle() {
  static_assert(policy_bundle<T>,
                "the rules of planning are a bundle of policies; put yours into one: "
                "policies<>{}.with(your_policy)");
  return true;
}

/// True when the bundle leaves the state format to the job or names the job's.
template <format_choice Format>
constexpr bool fits_format(model::job const& j) noexcept {
  if constexpr (update::state_format_policy<Format>) {
    return j.state == Format::format;
  } else {
    return true;
  }
}

}  // namespace protrain::inline v0::plan

namespace protrain::inline v0 {
using plan::policies;
}  // namespace protrain::inline v0
