// SPDX-License-Identifier: Apache-2.0
// The laws of a device, held by every device that needs no GPU and by an archetype, and broken by
// devices with one fault each.

#include "protrain/device/device.hpp"
#include "protrain/device/error.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/ledger.hpp"
#include "protrain/device/pages.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "test/law/device.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

namespace protrain::test {

enum class device_fault : std::uint8_t {
  none,
  last_comes_first,
  ignores_events,
  runs_on_after_a_failure,
  forgets_failures,
  repeats_failures,
  knows_one_category,
  keeps_what_is_released,
  takes_any_event,
  loses_alignment,
  refuses_without_words,
  leaves_what_should_be_zero,
  reserves_anew
};

/// As little as a device can be: submitted work waits in one list and runs in that order, which
/// every event allows. Without a fault it is the archetype.
class one_list {
 public:
  explicit one_list(device_fault fault) : fault_(fault) {}

  void reserve(space where, std::uint64_t bytes) {
    PROTRAIN_EXPECT(ledger_.usage_of(where).live == 0, "reserve: leases of this space are live");
    device::pages& memory = memory_[index(where)];
    std::uint64_t const held = memory.size();
    if (bytes <= held && fault_ != device_fault::reserves_anew) {
      return;
    }
    device::pages old = std::move(memory);
    memory = {};
    if (!memory.try_reserve(bytes)) {
      throw fault_ == device_fault::refuses_without_words
          ? device::device_error("reserve", "no")
          : device::reserve_error(where, bytes, held, 0);
    }
  }
  std::byte* base(space where) const {
    return memory_[index(where)].data() + (fault_ == device_fault::loses_alignment ? 64 : 0);
  }

  void submit(queue_id q, std::span<device::touched const>, device::task work) {
    list_.push_back({q, work});
  }
  device::event record(queue_id) { return {first_event_ + events_++}; }
  void wait(queue_id, device::event e) {
    PROTRAIN_EXPECT(fault_ == device_fault::takes_any_event || e.value - first_event_ < events_,
                    "wait: the event was reset or not recorded");
  }
  void reset_events() { first_event_ += std::exchange(events_, 0); }

  void copy(device::queue_ref, void* to, void const* from, std::uint64_t n) {
    if (n > 0) {
      std::memcpy(to, from, n);
    }
  }
  void zero(device::queue_ref, void* to, std::uint64_t n) {
    if (n > 0) {
      std::memset(to, fault_ == device_fault::leaves_what_should_be_zero ? 1 : 0, n);
    }
  }

  void lease(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    PROTRAIN_EXPECT(granules(checked_add(offset, bytes)) <= memory_[index(where)].size(),
                    "lease: outside the reserved arena");
    ledger_.lease(where, offset, bytes, seen_as(what));
  }
  void release(space where, std::uint64_t offset, std::uint64_t bytes, category what) {
    if (fault_ != device_fault::keeps_what_is_released) {
      ledger_.release(where, offset, bytes, seen_as(what));
    }
  }
  void settle() { ledger_.settle(); }
  device::usage usage_of(space where) const { return ledger_.usage_of(where); }
  void reset_usage() { ledger_.reset(); }

  void synchronize() {
    std::vector<queued> work = std::exchange(list_, {});
    if (fault_ == device_fault::last_comes_first) {
      std::reverse(work.begin(), work.end());
    } else if (fault_ == device_fault::ignores_events) {
      work = queue_by_queue(work);
    }
    for (queued const& each : work) {
      run(each);
    }
    std::exception_ptr const failure =
        fault_ == device_fault::repeats_failures ? failure_ : std::exchange(failure_, nullptr);
    if (failure != nullptr && fault_ != device_fault::forgets_failures) {
      std::rethrow_exception(failure);
    }
  }
  double seconds() const { return 0; }

 private:
  struct queued {
    queue_id on;
    device::task work;
  };

  static std::vector<queued> queue_by_queue(std::vector<queued> const& work) {
    std::vector<queued> out;
    for (queue_id const q : all_queues) {
      std::copy_if(work.begin(), work.end(), std::back_inserter(out), [q](queued const& each) {
        return each.on == q;
      });
    }
    return out;
  }
  static std::size_t index(space where) { return static_cast<std::size_t>(where); }
  category seen_as(category what) const {
    return fault_ == device_fault::knows_one_category ? category::scratch : what;
  }
  void run(queued const& q) {
    if (failure_ != nullptr && fault_ != device_fault::runs_on_after_a_failure) {
      return;
    }
    try {
      q.work.run(q.work.context, q.work.index, {.id = q.on});
    } catch (...) {
      failure_ = failure_ == nullptr ? std::current_exception() : failure_;
    }
  }

  device_fault fault_;
  device::ledger ledger_{};
  std::array<device::pages, space_count> memory_{};
  std::vector<queued> list_{};
  std::exception_ptr failure_{};
  std::uint32_t first_event_ = 0;
  std::uint32_t events_ = 0;
};
static_assert(device::device<one_list> && !counts_work<one_list>);

template <device_fault Fault>
struct listing {
  static one_list make() { return one_list(Fault); }
};

template <device::run_policy Policy, std::uint64_t Seed>
struct serial {
  static device::serial_device make() {
    return device::serial_device({.order = Policy, .seed = Seed});
  }
};

struct host {
  static device::host_device make() { return device::host_device(); }
};

PROTRAIN_DEVICE_LAWS(serial<device::run_policy::in_order, 0>,
                     serial<device::run_policy::random, 11>,
                     serial<device::run_policy::adversarial, 12>,
                     serial<device::run_policy::adversarial, 13>,
                     serial<device::run_policy::adversarial, 14>,
                     host,
                     listing<device_fault::none>);

// Their failures are what passes.
TEST_CASE("a device whose last task comes first is found out" * doctest::should_fail()) {
  check_device_order<listing<device_fault::last_comes_first>>();
}
TEST_CASE("a device that ignores events is found out" * doctest::should_fail()) {
  check_device_events<listing<device_fault::ignores_events>>();
}
TEST_CASE("a device whose events don't stand for waits is found out" * doctest::should_fail()) {
  check_device_transitive<listing<device_fault::ignores_events>>();
}
TEST_CASE("a device that runs on after a failure is found out" * doctest::should_fail()) {
  check_device_failure<listing<device_fault::runs_on_after_a_failure>>();
}
TEST_CASE("a device that forgets failures is found out" * doctest::should_fail()) {
  check_device_failure<listing<device_fault::forgets_failures>>();
}
TEST_CASE("a device that repeats failures is found out" * doctest::should_fail()) {
  check_device_failure<listing<device_fault::repeats_failures>>();
}
TEST_CASE("a device that knows one category is found out" * doctest::should_fail()) {
  check_device_ledger<listing<device_fault::knows_one_category>>();
}
TEST_CASE("a device that keeps what is released is found out" * doctest::should_fail()) {
  check_device_registration<listing<device_fault::keeps_what_is_released>>();
}
TEST_CASE("a device that takes any event is found out" * doctest::should_fail()) {
  check_device_stale_event<listing<device_fault::takes_any_event>>();
}
TEST_CASE("a device that loses the alignment is found out" * doctest::should_fail()) {
  check_device_reserve<listing<device_fault::loses_alignment>>();
}
TEST_CASE("a device that refuses without words is found out" * doctest::should_fail()) {
  check_device_reserve<listing<device_fault::refuses_without_words>>();
}
TEST_CASE("a device that doesn't fill with zeros is found out" * doctest::should_fail()) {
  check_device_zero<listing<device_fault::leaves_what_should_be_zero>>();
}
TEST_CASE("a device that registers twice is found out" * doctest::should_fail()) {
  check_device_registration<listing<device_fault::reserves_anew>>();
}

}  // namespace protrain::test
