// SPDX-License-Identifier: Apache-2.0
#pragma once
// The laws of profile::stamps_queues and profile::counts_outside. Devices under test are
// default-constructible. None ships that needs no GPU.

#include "protrain/device/device.hpp"
#include "protrain/profile/hooks.hpp"
#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace protrain::test {

/// The first law of stamps that D breaks; empty if it keeps them all.
template <class D>
  requires device::device<D> && profile::stamps_queues<D>
std::string broken_stamp_law() {
  D d;
  issuer issue(d);
  for (int round = 0; round < 3; ++round) {
    std::vector<std::uint32_t> stamps;  // one after the other, by waits
    for (std::size_t k = 0; k < 4 * queue_count; ++k) {
      queue_id const q = all_queues[k % queue_count];
      issue.task(q, {}, [&d, &stamps](device::queue_ref r) { stamps.push_back(d.stamp(r)); });
      issue.after(all_queues[(k + 1) % queue_count], q);
    }
    d.synchronize();
    for (std::size_t k = 0; k < stamps.size(); ++k) {
      double const at = d.seconds_at(stamps[k]);
      if (at != d.seconds_at(stamps[k])) {
        return "a stamp says the same every time";
      }
      if (k > 0 && at < d.seconds_at(stamps[k - 1])) {
        return "one clock for all queues, which doesn't go back";
      }
    }
    d.reset_stamps();
    d.reset_events();
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a device that stamps its queues", D, stamp_laws) {
  CHECK(broken_stamp_law<D>() == "");
}

/// The first law of outside memory that D breaks; empty if it keeps them all.
template <class D>
  requires device::device<D> && profile::counts_outside<D>
std::string broken_outside_law() {
  D d;
  std::uint64_t const before = d.outside();
  if (before != d.outside()) {
    return "equal while nothing happens";
  }
  d.reserve(space::device, 1U << 20U);
  d.lease(space::device, 0, 4096, category::scratch);
  std::uint64_t const with_arena = d.outside();
  d.release(space::device, 0, 4096, category::scratch);
  return with_arena == before ? "" : "the device's arena doesn't count";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a device that counts memory outside", D, outside_laws) {
  CHECK(broken_outside_law<D>() == "");
}

}  // namespace protrain::test
