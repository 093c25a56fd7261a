// SPDX-License-Identifier: Apache-2.0
// Policy concepts: what is a policy, and what is none for want of one thing.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/link/shared.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

namespace {

using namespace protrain;

/// Models of one role are models of no other: the tag is the consent.
template <class P>
constexpr int roles =
    (chunk::eviction_policy<P> ? 1 : 0) + (chunk::placement_policy<P> ? 1 : 0) +
    (chunk::sizing_policy<P> ? 1 : 0) + (activation::assignment_policy<P> ? 1 : 0) +
    (update::site_policy<P> ? 1 : 0) + (update::timing_policy<P> ? 1 : 0) +
    (update::state_format_policy<P> ? 1 : 0) + (link::bandwidth_policy<P> ? 1 : 0);
static_assert(roles<chunk::execution_order> == 1 && roles<chunk::persist_first> == 1);
static_assert(roles<chunk::furthest_next_use> == 1 && roles<chunk::least_recently_used> == 1);
static_assert(roles<chunk::persist_last> == 1 && roles<chunk::persist_by_benefit> == 1);
static_assert(chunk::weighs_benefits<chunk::persist_by_benefit>);
static_assert(!chunk::weighs_benefits<chunk::persist_last>);
static_assert(roles<chunk::uniform_grid> == 1 && roles<activation::interleaved> == 1);
static_assert(roles<activation::keep_all> == 1 && roles<activation::checkpoint_all> == 1);
static_assert(roles<update::cpu_or_streamed> == 1);
static_assert(roles<activation::swap_first> == 1 && roles<activation::levels> == 1);
static_assert(activation::level_policy<activation::levels>);
static_assert(!activation::level_policy<activation::interleaved>);
static_assert(!activation::level_policy<activation::swap_first>);
static_assert(roles<update::gpu_if_persistent> == 1 && roles<update::during_backward> == 1);
static_assert(roles<update::after_backward> == 1 && roles<update::split_master> == 1);
static_assert(roles<update::fp32> == 1 && roles<update::separate_master> == 1);
static_assert(roles<update::before_next_use> == 1 && roles<link::fixed> == 1);
static_assert(roles<link::derated> == 1 && roles<link::shared> == 1 && roles<int> == 0);

/// What a model lacks. Each role has one model with all of them, and is refused for each.
enum class lack : std::uint8_t { nothing, tag, equality, answer, constness, noexceptness };

template <lack L, class Tag>
using tag_of = std::conditional_t<L == lack::tag, int, Tag>;
template <lack L, class Answer>
using answer_of = std::conditional_t<L == lack::answer, void*, Answer>;

#define PROTRAIN_TEST_REFUSES(concept_, model, hook_may_throw)                       \
  static_assert(concept_<model<lack::nothing>> && !concept_<model<lack::tag>>);      \
  static_assert(!concept_<model<lack::equality>> && !concept_<model<lack::answer>>); \
  static_assert(!concept_<model<lack::constness>>);                                  \
  static_assert(concept_<model<lack::noexceptness>> == (hook_may_throw))

/// The hook `name` of a role, const and noexcept unless that is lacking.
#define PROTRAIN_TEST_MODEL(model, Tag, Answer, name, ...)                         \
  template <lack L>                                                                \
  struct model {                                                                   \
    using policy_tag = tag_of<L, Tag>;                                             \
    answer_of<L, Answer> name(__VA_ARGS__) const noexcept(L != lack::noexceptness) \
      requires(L != lack::constness);                                              \
    answer_of<L, Answer> name(__VA_ARGS__) noexcept                                \
      requires(L == lack::constness);                                              \
    bool operator==(model const&) const                                            \
      requires(L != lack::equality)                                                \
    = default;                                                                     \
  }

using flags = std::vector<std::uint8_t>;
using sizes = std::vector<std::uint64_t>;
using strategies = std::vector<activation::strategy>;
using pins = std::span<activation::pin const>;
using residents = std::span<chunk::resident const>;

PROTRAIN_TEST_MODEL(
    placement, chunk::placement_tag, flags, persistent, chunk::layout const&, std::uint32_t);
PROTRAIN_TEST_MODEL(sizing, chunk::sizing_tag, sizes, capacities, trace::trace const&);
PROTRAIN_TEST_MODEL(eviction, chunk::eviction_tag, std::size_t, victim, residents);
PROTRAIN_TEST_MODEL(
    assignment, activation::assignment_tag, strategies, assign, pins, activation::counts const&);
PROTRAIN_TEST_MODEL(rates, link::bandwidth_tag, bandwidth, rate, hw::machine const&, link::channel);
PROTRAIN_TEST_MODEL(timing, update::timing_tag, update::timing, choose, model::job const&);

/// Two hooks; what is lacking, `choose` lacks.
template <lack L>
struct site {
  using policy_tag = tag_of<L, update::site_tag>;
  std::uint32_t most_streamed(std::uint32_t) const noexcept;
  answer_of<L, update::site> choose(update::site_facts const&) const
      noexcept(L != lack::noexceptness)
    requires(L != lack::constness);
  answer_of<L, update::site> choose(update::site_facts const&) noexcept
    requires(L == lack::constness);
  bool operator==(site const&) const
    requires(L != lack::equality)
  = default;
};

PROTRAIN_TEST_REFUSES(chunk::placement_policy, placement, true);
PROTRAIN_TEST_REFUSES(chunk::sizing_policy, sizing, true);
PROTRAIN_TEST_REFUSES(chunk::eviction_policy, eviction, false);
PROTRAIN_TEST_REFUSES(activation::assignment_policy, assignment, true);
PROTRAIN_TEST_REFUSES(link::bandwidth_policy, rates, false);
PROTRAIN_TEST_REFUSES(update::site_policy, site, false);
PROTRAIN_TEST_REFUSES(update::timing_policy, timing, false);

/// A bandwidth policy in any case; what its second hook lacks makes it one that knows no contention.
template <lack L>
struct crowded_rates {
  using policy_tag = tag_of<L, link::bandwidth_tag>;
  bandwidth rate(hw::machine const&, link::channel) const noexcept;
  answer_of<L, bandwidth> rate_among(hw::machine const&, link::channel, link::load const&) const
      noexcept(L != lack::noexceptness)
    requires(L != lack::constness);
  answer_of<L, bandwidth> rate_among(hw::machine const&, link::channel, link::load const&) noexcept
    requires(L == lack::constness);
  bool operator==(crowded_rates const&) const
    requires(L != lack::equality)
  = default;
};
PROTRAIN_TEST_REFUSES(link::knows_contention, crowded_rates, false);
static_assert(link::bandwidth_policy<crowded_rates<lack::answer>>);

template <lack L>
struct format_bytes {
  using policy_tag = tag_of<L, update::state_format_tag>;
  static constexpr answer_of<L, model::state_format> format = {};
  static constexpr std::uint64_t value_bytes = 4;
  static constexpr std::uint64_t state_bytes = 8;
  bool operator==(format_bytes const&) const
    requires(L != lack::equality)
  = default;
};
static_assert(update::state_format_policy<format_bytes<lack::nothing>>);
static_assert(!update::state_format_policy<format_bytes<lack::tag>>);
static_assert(!update::state_format_policy<format_bytes<lack::equality>>);
static_assert(!update::state_format_policy<format_bytes<lack::answer>>);

}  // namespace
