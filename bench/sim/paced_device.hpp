// SPDX-License-Identifier: Apache-2.0
#pragma once
// A host device whose memories have rates, as its links do.

#include "protrain/core/queue.hpp"
#include "protrain/core/units.hpp"
#include "protrain/device/device.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/hw/machine.hpp"

#include <cstdint>
#include <deque>
#include <span>

namespace protrain::bench {

/// Takes as long as `m` says: copies by the rates and the latency of its links, every task of
/// `compute` and `cpu` at least by the bytes that it declares to read and write, at the rate of the
/// device's or the host's memory. A pass of a block takes longer than that. Nothing may be queued
/// when it is destroyed.
class paced_device : public device::host_device {
 public:
  explicit paced_device(hw::machine const& m)
      : host_device(
            {.h2d = {m.host_to_device, m.copy_latency}, .d2h = {m.device_to_host, m.copy_latency}}),
        device_memory_(m.device_bandwidth),
        host_memory_(m.host_bandwidth) {}

  void submit(queue_id q, std::span<device::touched const> declared, device::task work) {
    if (q != queue_id::compute && q != queue_id::cpu) {
      host_device::submit(q, declared, work);
      return;
    }
    std::uint64_t traffic = 0;
    for (device::touched const& t : declared) {
      traffic += t.bytes * ((t.read ? 1U : 0U) + (t.write ? 1U : 0U));
    }
    tasks_.push_back(
        {*this, work, time_of(traffic, q == queue_id::cpu ? host_memory_ : device_memory_)});
    host_device::submit(q, declared, {&run, &tasks_.back(), work.index});
  }

  void reset_events() {
    host_device::reset_events();
    tasks_.clear();
  }

 private:
  struct paced_task {
    paced_device& owner;
    device::task work;
    picoseconds least;
  };

  static void run(void* context, std::uint32_t index, device::queue_ref q) {
    auto const& task = *static_cast<paced_task const*>(context);
    task.work.run(task.work.context, index, q);
    task.owner.hold(q, task.least);
  }

  bandwidth device_memory_;
  bandwidth host_memory_;
  std::deque<paced_task> tasks_{};  // until the issuer has seen them done
};

static_assert(device::device<paced_device>);

}  // namespace protrain::bench
