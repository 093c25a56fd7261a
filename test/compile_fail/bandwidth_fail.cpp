// SPDX-License-Identifier: Apache-2.0
// copy_time refuses a bandwidth policy whose rate is no bandwidth, or that didn't consent; what is
// called rate_beside_swap or rate_among is that, and not something else that is never asked.
// expect: return-type-requirement|same_as
// expect: no type named .policy_tag.
// expect: rate_beside_swap: a policy that knows swapping has bandwidth rate_beside_swap\(
// expect: rate_among: a policy that knows contention has bandwidth rate_among\(

#include "protrain/link/bandwidth.hpp"
#include "protrain/link/derated.hpp"
#include "protrain/link/shared.hpp"

namespace {

struct policy {
#if FAULT_ON != 2
  using policy_tag = protrain::link::bandwidth_tag;
#endif
#if FAULT_ON == 1
  double rate(protrain::hw::machine const&, protrain::link::channel) const noexcept { return 1; }
#else
  protrain::bandwidth rate(protrain::hw::machine const&, protrain::link::channel) const noexcept {
    return {1};
  }
#endif
  protrain::bandwidth rate_beside_swap(protrain::hw::machine const&, protrain::link::channel) const
#if FAULT_ON != 3
      noexcept
#endif
  {
    return {1};
  }
  protrain::bandwidth rate_among(protrain::hw::machine const&,
                                 protrain::link::channel,
#if FAULT_ON == 4
                                 protrain::link::load&) const noexcept {
#else
                                 protrain::link::load const&) const noexcept {
#endif
    return {1};
  }
  bool operator==(policy const&) const = default;
};

}  // namespace

protrain::picoseconds try_it(protrain::hw::machine const& m) {
  auto const channel = protrain::link::channel::host_to_device;
  (void)protrain::link::rate_beside_swap(policy{}, m, channel);
  (void)protrain::link::rate_among(policy{}, m, channel, {});
  return protrain::link::copy_time(policy{}, m, channel, 1);
}
