// SPDX-License-Identifier: Apache-2.0
#pragma once
// Small random jobs and machines whose copies, compute and updates take similar times, so that no
// knob is free.

#include "protrain/hw/machine.hpp"
#include "protrain/plan/budget.hpp"
#include "protrain/plan/policies.hpp"
#include "protrain/plan/search.hpp"
#include "protrain/trace/trace.hpp"
#include "test/support/any_policy.hpp"
#include "test/support/random_jobs.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace protrain::test {

using any_bundle = decltype(policies<>{}.with(any_placement{}).with(any_eviction{}));

struct planning_case {
  trace::trace facts{};
  hw::machine machine{};
  any_bundle rules{};
};

inline hw::machine random_machine(random_source& r) {
  auto const random_rate = [&] { return 1'000'000'000'000 * r.between(1, 40); };
  return {.name = "random",
          .device_memory = {1ULL << 40U},
          .host_memory = {1ULL << 40U},
          .host_to_device = {random_rate()},
          .device_to_host = {random_rate()},
          .copy_latency = {r.chance(50) ? 0 : r.between(1, 400)},
          .device_bandwidth = {random_rate() * 10},
          .host_bandwidth = {random_rate()},
          .collective = {random_rate()}};
}

/// A job of at most `blocks` blocks, and a bundle that chooses chunks in one of the shipped ways.
inline planning_case make_planning_case(std::uint64_t seed, std::size_t blocks) {
  random_source r(seed ^ 0x91A2ULL);
  planning_case out{.facts = random_trace(r)};
  while (out.facts.blocks.size() > blocks) {
    out.facts = random_trace(r);
  }
  out.machine = random_machine(r);
  out.rules.placement.kind = r.between32(0, placement_kinds - 1);
  out.rules.eviction.kind = r.between32(0, eviction_kinds - 1);
  return out;
}

/// More than any plan needs.
inline plan::budget everything() { return {.gpu = {1ULL << 40U}, .host = {1ULL << 40U}}; }

/// Between the least that any plan needs and what the fastest one takes.
inline plan::budget random_budget(random_source& r, planning_case const& c) {
  plan::budget out = everything();
  auto const fastest = plan::search(c.facts, c.machine, out, c.rules);
  REQUIRE(fastest.has_value());
  auto const none = plan::search(c.facts, c.machine, {.gpu = {0}, .host = out.host}, c.rules);
  std::uint64_t const least = none ? 0 : none.failure().needs_device;
  std::uint64_t const most = std::max(fastest->predicted.device.peak, least);
  out.gpu = {r.between(least, most)};
  if (r.chance(30)) {
    out.host = {r.between(0, 2 * fastest->predicted.host.peak)};
  }
  return out;
}

}  // namespace protrain::test
