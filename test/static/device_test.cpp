// SPDX-License-Identifier: Apache-2.0
// The device concept: what is a device, and what is none for want of one operation.

#include "protrain/device/device.hpp"

#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace {

namespace pd = protrain::device;
using protrain::category;
using protrain::queue_id;
using protrain::space;

/// The least that is a device.
struct archetype {
  void reserve(space, std::uint64_t);
  std::byte* base(space) const;
  void submit(queue_id, std::span<pd::touched const>, pd::task);
  pd::event record(queue_id);
  void wait(queue_id, pd::event);
  void reset_events();
  void copy(pd::queue_ref, void*, void const*, std::uint64_t);
  void zero(pd::queue_ref, void*, std::uint64_t);
  void lease(space, std::uint64_t, std::uint64_t, category);
  void release(space, std::uint64_t, std::uint64_t, category);
  void settle();
  pd::usage usage_of(space) const;
  void reset_usage();
  void synchronize();
  double seconds() const;
};

struct no_event : archetype {
  void record(queue_id);
};
struct no_memory : archetype {
  void base(space) const;
};
struct mutable_usage : archetype {
  pd::usage usage_of(space);
};

static_assert(pd::device<archetype>);
static_assert(pd::device<pd::host_device>);
static_assert(pd::device<pd::serial_device>);
static_assert(!pd::device<no_event>);
static_assert(!pd::device<no_memory>);
static_assert(!pd::device<mutable_usage>);
static_assert(!pd::device<int>);

// A device is a place: it neither moves nor is copied.
static_assert(!std::is_move_constructible_v<pd::host_device>);
static_assert(!std::is_copy_constructible_v<pd::serial_device>);
// Submitting allocates nothing: a task is two pointers and a number.
static_assert(std::is_trivially_copyable_v<pd::task> && sizeof(pd::task) <= 24);

}  // namespace
