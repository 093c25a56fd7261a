// SPDX-License-Identifier: Apache-2.0
// Waits for a limited time: the laws over the host device, a minimal device and one with a value,
// and devices that break one each.

#include "test/law/timed_device.hpp"

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/device/timed.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

namespace timed_device_test {

namespace {

using namespace protrain;

/// The least that can be called one: it always waits to the end.
class archetype : public device::serial_device {
 public:
  bool synchronize_for(std::chrono::nanoseconds) {
    synchronize();
    return true;
  }
};

/// Never waits for longer than its value at once.
class impatient : public device::host_device {
 public:
  std::chrono::nanoseconds most = std::chrono::milliseconds(7);
  bool synchronize_for(std::chrono::nanoseconds t) {
    auto const until = std::chrono::steady_clock::now() + t;
    while (!device::host_device::synchronize_for(std::min(t, most))) {
      if (std::chrono::steady_clock::now() >= until) {
        return false;
      }
    }
    return true;
  }
};

TEST_CASE_TEMPLATE_INVOKE(test::timed_laws, device::host_device, archetype, impatient);

enum class breach : std::uint8_t {
  gives_up_at_once,
  never_done,
  loses_failures,
  in_a_hurry,
  done_while_it_hangs
};

/// Breaks one law.
template <breach How>
class lawless : public device::host_device {
 public:
  bool synchronize_for(std::chrono::nanoseconds t) {
    bool const asked_before = asked_;
    asked_ = true;
    if (How == breach::gives_up_at_once || (How == breach::never_done && asked_before)) {
      return false;
    }
    try {
      auto const most = How == breach::in_a_hurry
                            ? std::min<std::chrono::nanoseconds>(t, std::chrono::microseconds(1000))
                            : t;
      return device::host_device::synchronize_for(most) ||
             (How == breach::done_while_it_hangs && t > std::chrono::milliseconds(1));
    } catch (std::runtime_error const&) {
      if (How != breach::loses_failures) {
        throw;
      }
    }
    return true;
  }

 private:
  bool asked_ = false;
};

TEST_CASE("devices that break a law of limited waits are found out") {
  using test::broken_timed_law;
  CHECK(broken_timed_law<lawless<breach::gives_up_at_once>>() == "true where nothing is queued");
  CHECK(broken_timed_law<lawless<breach::never_done>>() == "true once all is done");
  CHECK(broken_timed_law<lawless<breach::loses_failures>>() == "what a task threw is rethrown");
  CHECK(broken_timed_law<lawless<breach::in_a_hurry>>() == "false once the time is over");
  CHECK(broken_timed_law<lawless<breach::done_while_it_hangs>>() == "false while work is queued");
}

}  // namespace

}  // namespace timed_device_test
