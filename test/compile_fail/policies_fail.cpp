// SPDX-License-Identifier: Apache-2.0
// A bundle says what a policy lacks: one per role, each with one fault, and one without a role.
// expect: policies::with: a placement policy is regular .* persistent\(chunk::layout const&
// and: policies::with: a sizing policy is regular .* capacities\(trace::trace const&\)
// and: policies::with: an eviction policy is regular .* victim\(std::span<chunk::resident const>\)
// and: policies::with: an assignment policy is regular .* assign\(std::span<activation::pin const>
// and: policies::with: a bandwidth policy is regular .* rate\(hw::machine const&, link::channel\)
// and: policies::with: a site policy is regular .* choose\(update::site_facts const&\) const noexcept
// and: policies::with: a timing policy is regular .* choose\(model::job const&\) const noexcept
// and: policies::with: a state format is regular .* format, value_bytes and state_bytes
// and: policies::with: no policy. Its policy_tag is one of chunk::placement_tag
// and: the rules of planning are a bundle of policies; .* policies<>\{\}.with\(your_policy\)
// and: laws: protrain/chunk/placement.hpp
// and: laws: protrain/update/state_format.hpp
// and: placement law: a policy that weighs benefits has .* std::span<chunk::benefit const>
// and: assignment law: a policy that places levels has .* save_levels\(std::span<activation::pin
// and: requires \(placement_policy<Placement>\)|does not satisfy .placement_policy.

#include "protrain/plan/policies.hpp"

#include <cstdint>
#include <span>
#include <vector>

#if FAULT_ON
#define WRONG(right, wrong) wrong
#else
#define WRONG(right, wrong) right
#endif

namespace {

using namespace protrain;

struct placement {
  using policy_tag = chunk::placement_tag;
  std::vector<WRONG(std::uint8_t, bool)> persistent(chunk::layout const&, std::uint32_t) const {
    return {};
  }
  bool operator==(placement const&) const = default;
};
struct sizing {
  using policy_tag = chunk::sizing_tag;
  std::vector<std::uint64_t> capacities(trace::trace const&) WRONG(const, ) { return {}; }
  bool operator==(sizing const&) const = default;
};
struct eviction {
  using policy_tag = chunk::eviction_tag;
  std::size_t victim(std::span<chunk::resident const>) const WRONG(noexcept, ) { return 0; }
  bool operator==(eviction const&) const = default;
};
struct assignment {
  using policy_tag = activation::assignment_tag;
  std::vector<activation::strategy> WRONG(assign, assigned)(std::span<activation::pin const>,
                                                            activation::counts const&) const {
    return {};
  }
  bool operator==(assignment const&) const = default;
};
struct rates {
  using policy_tag = link::bandwidth_tag;
  WRONG(bandwidth, double) rate(hw::machine const&, link::channel) const noexcept { return {}; }
  bool operator==(rates const&) const = default;
};
struct site {
  using policy_tag = update::site_tag;
  std::uint32_t most_streamed(std::uint32_t) const noexcept { return 0; }
  update::site choose(update::site_facts const WRONG(&, *)) const noexcept { return {}; }
  bool operator==(site const&) const = default;
};
struct timing {
  using policy_tag = update::timing_tag;
  update::timing choose(model::job const&) const noexcept { return {}; }
  bool WRONG(operator==, equals)(timing const&) const WRONG(= default, { return true; });
};
struct no_format {
  using policy_tag = update::state_format_tag;
  static constexpr auto format = model::state_format::fp32;
  static constexpr std::uint64_t value_bytes = 4;
  static constexpr std::uint64_t WRONG(state_bytes, bytes_of_state) = 8;
  bool operator==(no_format const&) const = default;
};
struct without_role {
  using policy_tag = WRONG(chunk::eviction_tag, void);
  std::size_t victim(std::span<chunk::resident const>) const noexcept { return 0; }
  bool operator==(without_role const&) const = default;
};

/// Policies, but what they have besides would never be asked.
struct half_weighing : chunk::persist_last {
  using chunk::persist_last::persistent;
  std::vector<WRONG(std::uint8_t, bool)> persistent(chunk::layout const&,
                                                    std::span<chunk::benefit const>,
                                                    std::uint32_t) const {
    return {};
  }
  bool operator==(half_weighing const&) const = default;
};
struct half_levelled : activation::keep_all {
  std::vector<std::uint8_t> save_levels(std::span<activation::pin const>,
                                        std::span<WRONG(std::uint8_t, std::uint32_t) const>,
                                        activation::counts const&) const {
    return {};
  }
  bool operator==(half_levelled const&) const = default;
};

}  // namespace

void ask(chunk::layout const& l) {
  (void)chunk::persistent_of(half_weighing{}, l, {}, 1);
  (void)activation::assign(half_levelled{}, {}, {}, {});
}

auto bundle() {
  return policies<>{}
      .with(placement{})
      .with(sizing{})
      .with(eviction{})
      .with(assignment{})
      .with(rates{})
      .with(site{})
      .with(timing{})
      .with(no_format{})
      .with(without_role{});
}

plan::policies<WRONG(chunk::persist_first, int)> by_position;
static_assert(plan::require_bundle<WRONG(policies<>, chunk::persist_first)>());
