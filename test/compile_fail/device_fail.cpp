// SPDX-License-Identifier: Apache-2.0
// An optional operation under its name with other arguments is an error, not absent.
// expect: note_written: a device that checks has written\(space, std::uint64_t offset

#include "protrain/device/device.hpp"

using namespace protrain;

struct checking {
  void reserve(space, std::uint64_t);
  std::byte* base(space) const;
  void submit(queue_id, std::span<device::touched const>, device::task);
  device::event record(queue_id);
  void wait(queue_id, device::event);
  void reset_events();
  void copy(device::queue_ref, void*, void const*, std::uint64_t);
  void zero(device::queue_ref, void*, std::uint64_t);
  void lease(space, std::uint64_t, std::uint64_t, category);
  void release(space, std::uint64_t, std::uint64_t, category);
  void settle();
  device::usage usage_of(space) const;
  void reset_usage();
  void synchronize();
  double seconds() const;
#if FAULT_ON
  void written(std::byte*, std::uint64_t) {}
#else
  void written(space, std::uint64_t, std::uint64_t) {}
#endif
};

void tell(checking& d) { device::note_written(d, space::host, 0, 1); }
