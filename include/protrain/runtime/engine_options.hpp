// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an engine is told that no plan knows. None of it changes a bit.

#include "protrain/runtime/stall.hpp"

#include <cstdint>

namespace protrain::inline v0::runtime {

/// Hears of a step that hangs, on the thread that waits, while it still hangs.
struct stall_listener {
  void* context = nullptr;
  void (*call)(void* context, stall const& what) = nullptr;
  bool operator==(stall_listener const&) const = default;
};

struct engine_options {
  /// Threads of what programs put on the cpu queue: updates, accumulation and norms of chunks that
  /// live on the host. 0: a fair share of the processors that this process may use, at least 1.
  std::uint32_t threads = 0;
  /// Ranks that these processors are shared with, this one included; 0: the communicator's on this
  /// host. Where a launcher binds each rank to processors of its own, say 1.
  std::uint32_t local_ranks = 0;
  /// A step in which no queue begins or ends an instruction for so many seconds fails with
  /// stall_error; 0 = waits for ever. On devices that can wait for a limited time
  /// (device::timed_device). Collectives on the caller's own thread have the communicator's limit.
  double stall_after = 0;
  stall_listener on_stall{};  ///< called before that
  bool operator==(engine_options const&) const = default;
};

}  // namespace protrain::inline v0::runtime
