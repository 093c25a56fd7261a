// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicator of a job with one rank: every collective is already done.

#include "protrain/comm/communicator.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::comm {

/// A left fold over one rank is the contribution itself. Aborting wakes nobody: no rank waits.
class self {
 public:
  std::uint32_t rank() const noexcept { return 0; }
  std::uint32_t size() const noexcept { return 1; }
  void reduce_scatter_ordered(
      device::queue_ref, std::byte*, std::byte*, std::uint64_t, dtype) noexcept {}
  void all_gather(device::queue_ref, std::byte*, std::uint64_t) noexcept {}
  std::uint64_t sum(std::uint64_t n) noexcept { return n; }
  void abort(std::string_view) noexcept {}
};
static_assert(communicator<self>);

}  // namespace protrain::inline v0::comm
