// SPDX-License-Identifier: Apache-2.0
// Policy concepts: what is a policy, and what is none for want of one thing.

#include "protrain/activation/assignment.hpp"
#include "protrain/chunk/eviction.hpp"
#include "protrain/chunk/placement.hpp"
#include "protrain/chunk/sizing.hpp"
#include "protrain/link/bandwidth.hpp"
#include "protrain/update/site.hpp"
#include "protrain/update/state_format.hpp"
#include "protrain/update/timing.hpp"

#include <cstddef>
#include <span>
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
static_assert(roles<activation::swap_first> == 1 && roles<activation::levels> == 1);
static_assert(activation::level_policy<activation::levels>);
static_assert(!activation::level_policy<activation::interleaved>);
static_assert(!activation::level_policy<activation::swap_first>);
static_assert(roles<update::gpu_if_persistent> == 1 && roles<update::during_backward> == 1);
static_assert(roles<update::after_backward> == 1 && roles<update::split_master> == 1);
static_assert(roles<update::fp32> == 1 && roles<link::fixed> == 1 && roles<int> == 0);

using residents = std::span<chunk::resident const>;

struct without_tag {
  std::size_t victim(residents) const noexcept { return 0; }
  bool operator==(without_tag const&) const = default;
};
struct foreign_tag : without_tag {
  using policy_tag = chunk::placement_tag;
};
struct may_throw {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(residents) const { return 0; }
  bool operator==(may_throw const&) const = default;
};
struct not_const {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(residents) noexcept { return 0; }
  bool operator==(not_const const&) const = default;
};
struct wrong_answer {
  using policy_tag = chunk::eviction_tag;
  int victim(residents) const noexcept { return 0; }
  bool operator==(wrong_answer const&) const = default;
};
struct not_regular {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(residents) const noexcept { return 0; }
};
struct right : without_tag {
  using policy_tag = chunk::eviction_tag;
};
static_assert(chunk::eviction_policy<right>);
static_assert(!chunk::eviction_policy<without_tag> && !chunk::eviction_policy<foreign_tag>);
static_assert(!chunk::eviction_policy<may_throw> && !chunk::eviction_policy<not_const>);
static_assert(!chunk::eviction_policy<wrong_answer> && !chunk::eviction_policy<not_regular>);

}  // namespace
