// SPDX-License-Identifier: Apache-2.0
// copy_time refuses a bandwidth policy whose rate is no bandwidth, or that didn't consent.
// expect: constraints not satisfied|no matching function|same_as
// expect: constraints not satisfied|no matching function|no type named .policy_tag

#include "protrain/link/bandwidth.hpp"

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
  bool operator==(policy const&) const = default;
};

}  // namespace

protrain::picoseconds try_it(protrain::hw::machine const& m) {
  return protrain::link::copy_time(policy{}, m, protrain::link::channel::host_to_device, 1);
}
