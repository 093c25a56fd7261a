// SPDX-License-Identifier: Apache-2.0
// What a device may tell a profiler: the laws over minimal devices and such with state.

#include "protrain/profile/hooks.hpp"

#include "protrain/device/serial/serial_device.hpp"
#include "test/law/hooks.hpp"
#include "test/unit/profile/devices.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>

namespace hooks_test {

namespace {

using namespace protrain;

/// Stamps are numbers in their order; nothing is outside.
class archetype : public device::serial_device {
 public:
  std::uint32_t stamp(device::queue_ref) { return last_++; }
  double seconds_at(std::uint32_t stamp) const { return stamp; }
  void reset_stamps() { last_ = 0; }
  std::uint64_t outside() const { return 0; }

 private:
  std::uint32_t last_ = 0;
};

/// Every stamp takes time.
class slow_stamps : public test::stamped_device {
 public:
  std::uint32_t stamp(device::queue_ref q) {
    work({1000});
    return test::stamped_device::stamp(q);
  }
};

TEST_CASE_TEMPLATE_INVOKE(test::stamp_laws, archetype, test::stamped_device, slow_stamps);
TEST_CASE_TEMPLATE_INVOKE(test::outside_laws, archetype, test::growing_device);

enum class breach : std::uint8_t { goes_back, a_clock_per_queue, says_otherwise, counts_its_arena };

/// Breaks one law.
template <breach How>
class lawless : public archetype {
 public:
  std::uint32_t stamp(device::queue_ref q) {
    std::uint32_t const n = archetype::stamp(q);
    return How == breach::goes_back           ? 1000 - n
           : How == breach::a_clock_per_queue ? n / 6 + 100 * static_cast<unsigned>(q.id)
                                              : n;
  }
  double seconds_at(std::uint32_t stamp) const {
    return archetype::seconds_at(stamp) +
           (How == breach::says_otherwise ? static_cast<double>(++asked_) : 0);
  }
  std::uint64_t outside() const {
    return How == breach::says_otherwise     ? ++asked_
           : How == breach::counts_its_arena ? usage_of(space::device).live
                                             : 0;
  }

 private:
  mutable std::uint64_t asked_ = 0;
};

TEST_CASE("devices that break a law of stamps or of outside memory are found out") {
  std::string const clock = "one clock for all queues, which doesn't go back";
  CHECK(test::broken_stamp_law<lawless<breach::goes_back>>() == clock);
  CHECK(test::broken_stamp_law<lawless<breach::a_clock_per_queue>>() == clock);
  CHECK(test::broken_stamp_law<lawless<breach::says_otherwise>>() ==
        "a stamp says the same every time");
  CHECK(test::broken_outside_law<lawless<breach::says_otherwise>>() ==
        "equal while nothing happens");
  CHECK(test::broken_outside_law<lawless<breach::counts_its_arena>>() ==
        "the device's arena doesn't count");
}

}  // namespace

}  // namespace hooks_test
