// SPDX-License-Identifier: Apache-2.0
// The laws of a device, held by every device that needs no GPU.

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "test/law/device.hpp"

namespace protrain::test {

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
                     host);

}  // namespace protrain::test
