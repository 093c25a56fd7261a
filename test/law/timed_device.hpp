// SPDX-License-Identifier: Apache-2.0
#pragma once
// The law of device::timed_device: a wait for a limited time. Devices under test are
// default-constructible; one with threaded_tasks is also looked at while it hangs.

#include "protrain/device/device.hpp"
#include "protrain/device/timed.hpp"
#include "test/law/device_tools.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>

namespace protrain::test {
namespace detail {

/// Nothing is queued any more when it ends: tasks look at what was made before it.
template <class D>
struct rest {
  D& device;
  explicit rest(D& d) : device(d) {}
  rest(rest const&) = delete;
  rest& operator=(rest const&) = delete;
  ~rest() {
    try {
      device.synchronize();
    } catch (std::runtime_error const&) {  // what a task threw
    }
  }
};

/// Waits in short turns; false if the device never answers true.
template <device::timed_device D>
bool wait_in_turns(D& d) {
  using namespace std::chrono_literals;
  for (int turn = 0; turn < 2000; ++turn) {
    if (d.synchronize_for(1ms)) {
      return true;
    }
  }
  return false;
}

/// One queue hangs in a task, while a task of another one has failed.
template <device::timed_device D>
std::string broken_hanging_law(D& d) {
  using namespace std::chrono_literals;
  issuer issue(d);
  std::atomic<bool> begun{false};
  std::atomic<bool> open{false};
  std::atomic<bool> through{false};
  rest const at_the_end(d);
  issue.task(queue_id::h2d, {}, [&](device::queue_ref) {
    begun = true;
    while (!open) {
      std::this_thread::yield();
    }
    through = true;
  });
  issue.task(queue_id::cpu, {}, [&](device::queue_ref) {
    while (!begun) {  // after a failure nothing begins
      std::this_thread::yield();
    }
    throw std::runtime_error("failed");
  });
  std::string out;
  auto const start = std::chrono::steady_clock::now();
  try {
    out = d.synchronize_for(5ms) ? "false while work is queued" : "";
  } catch (std::runtime_error const&) {
    out = "nothing is rethrown before all is done";
  }
  bool const early = std::chrono::steady_clock::now() - start < 5ms;
  out = out.empty() && early ? "false once the time is over" : out;
  open = true;
  try {
    out = wait_in_turns(d) && out.empty() ? "the failure is thrown in the end" : out;
  } catch (std::runtime_error const&) {
  }
  return out.empty() && !through ? "work goes on after a false" : out;
}

}  // namespace detail

/// The first law that D breaks; empty if it keeps them all.
template <device::timed_device D>
std::string broken_timed_law() {
  using namespace std::chrono_literals;
  D d;
  if (!d.synchronize_for(0ms)) {
    return "true where nothing is queued";
  }
  std::atomic<std::uint32_t> done{0};
  issuer issue(d);
  detail::rest const at_the_end(d);
  for (std::uint32_t round = 0; round < 20; ++round) {
    for (queue_id const q : all_queues) {
      issue.task(q, {}, [&](device::queue_ref) { ++done; });
    }
  }
  if (!detail::wait_in_turns(d)) {
    return "true once all is done";
  }
  if (done != 20 * queue_count) {
    return "true means that all is done";
  }
  issue.task(queue_id::compute, {}, [](device::queue_ref) { throw std::runtime_error("failed"); });
  try {
    (void)detail::wait_in_turns(d);
    return "what a task threw is rethrown";
  } catch (std::runtime_error const&) {
  }
  issue.task(queue_id::compute, {}, [&](device::queue_ref) { ++done; });
  if (!detail::wait_in_turns(d) || done != 20 * queue_count + 1) {
    return "usable after a failure";
  }
  if constexpr (device::threaded_tasks<D>) {
    return detail::broken_hanging_law(d);
  }
  return "";
}

TEST_CASE_TEMPLATE_DEFINE("laws of a device that waits for a limited time", D, timed_laws) {
  CHECK(broken_timed_law<D>() == "");
}

}  // namespace protrain::test
