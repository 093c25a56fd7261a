// SPDX-License-Identifier: Apache-2.0
#pragma once
// When a chunk's update may start and must be done.

#include "protrain/model/job.hpp"

#include <concepts>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::update {

enum class timing : std::uint8_t {
  during_backward,  ///< from the gradient's arrival to the end of the step
  after_backward,   ///< from the norm of all gradients to the end of the step
  before_next_use,  ///< from the gradient's arrival, or the norm if the job needs it, to the
                    ///< chunk's next use, which for deferred chunks is in the next step
};

constexpr std::string_view name_of(timing t) noexcept {
  switch (t) {
    case timing::during_backward:
      return "during_backward";
    case timing::after_backward:
      return "after_backward";
    case timing::before_next_use:
      return "before_next_use";
  }
  return "unknown";
}

/// A job that needs the norm can't update before it is known.
constexpr bool allowed(timing t, model::job const& j) noexcept {
  return t != timing::during_backward || !needs_norm(j);
}

struct timing_tag {};

/// Chooses the update time of a job. Laws (test/law/update.hpp): the answer is allowed; equal inputs
/// give equal answers.
template <class P>
concept timing_policy = std::regular<P> && std::same_as<typename P::policy_tag, timing_tag> &&
                        requires(P const& p, model::job const& j) {
                          { p.choose(j) } noexcept -> std::same_as<timing>;
                        };

/// The paper's: as soon as the gradient is there; after backward where the norm must be known.
struct during_backward {
  using policy_tag = timing_tag;
  constexpr timing choose(model::job const& j) const noexcept {
    return needs_norm(j) ? timing::after_backward : timing::during_backward;
  }
  bool operator==(during_backward const&) const = default;
};
static_assert(timing_policy<during_backward>);

/// Updates that the next step needs first are carried into it.
struct before_next_use {
  using policy_tag = timing_tag;
  constexpr timing choose(model::job const&) const noexcept { return timing::before_next_use; }
  bool operator==(before_next_use const&) const = default;
};
static_assert(timing_policy<before_next_use>);

/// Every update waits for the end of backward.
struct after_backward {
  using policy_tag = timing_tag;
  constexpr timing choose(model::job const&) const noexcept { return timing::after_backward; }
  bool operator==(after_backward const&) const = default;
};
static_assert(timing_policy<after_backward>);

}  // namespace protrain::inline v0::update
