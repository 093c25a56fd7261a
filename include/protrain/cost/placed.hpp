// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a placement alone decides: bytes that are carried in each space, and work that belongs to the
// device's or the host's queues.

#include "protrain/chunk/layout.hpp"
#include "protrain/cost/step.hpp"
#include "protrain/schedule/knobs.hpp"
#include "protrain/schedule/program.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace protrain::inline v0::cost {

/// Streamed updates that start after a block's backward.
struct late_stream {
  block_id closes{};     ///< of the first; none: nothing is known
  picoseconds copies{};  ///< down, of them and later ones; what goes up may have gone before
};

struct placed {
  std::vector<std::uint8_t> persistent{};
  std::uint32_t fewest_buffers = 0;
  std::uint32_t most_buffers = 0;
  std::uint64_t buffer_bytes = 0;    ///< one buffer
  std::uint64_t slot_bytes = 0;      ///< one slot for parts of streamed chunks
  std::uint64_t device_carried = 0;  ///< without buffers and slots
  std::uint64_t host_carried = 0;
  bool device_updates = false;  ///< some chunk is updated where it lives on the device
  bool device_scalars = false;  ///< some chunk is updated on the device
  bool device_norms = false;    ///< some chunk's gradient is complete on the device
  std::uint32_t defer = 0;      ///< chunks whose updates are left to the next step
  std::vector<std::uint8_t> deferred{};
  std::vector<std::uint8_t> streamed{};
  picoseconds stream_up{};                    ///< copies of streamed chunks
  picoseconds stream_down{};                  ///< likewise
  picoseconds stream_waited{};                ///< of those down, after the norm
  std::array<late_stream, 4> late_streams{};  ///< some of those that follow backward passes
  picoseconds host_left{};                    ///< updates that the step before left over
  picoseconds left_forward{};  ///< no first forward pass behind them ends before this
  picoseconds reduces{};       ///< reductions of one micro-batch
  block_id first_reduced{};    ///< first block whose end lets one start
  picoseconds last_reduced{};  ///< reductions that start after the last backward
  std::vector<chunk_id> moving_oversize{};

  picoseconds uploads{};                 ///< of every regular chunk that moves, once
  std::vector<picoseconds> largest{};    ///< sums of the n largest of these uploads
  picoseconds uploads_oversize{};        ///< of every oversize chunk that moves, once
  picoseconds uploads_oversize_again{};  ///< what the step repeats of them
  picoseconds uploads_first{};           ///< what block 0 needs
  picoseconds held_forward{};            ///< computing of one micro-batch, for each buffer in use
  picoseconds held_backward{};           ///< likewise, recomputing aside
  picoseconds gathers{};                 ///< of every regular chunk that moves, once
  std::vector<picoseconds> longest{};    ///< sums of the n longest of these gathers
  picoseconds gathers_oversize{};        ///< of every oversize chunk that moves, once
  picoseconds gathers_oversize_again{};  ///< what the step repeats of them
  picoseconds gather_first{};            ///< the shortest of what block 0 needs
  picoseconds shortest_upload{};         ///< of all of these
  picoseconds shortest_gather{};
  picoseconds offloads{};          ///< of one micro-batch
  picoseconds offloads_end{};      ///< of them, after the last backward
  block_id first_closed{};         ///< first block whose end lets an offload start
  picoseconds first_offload{};     ///< the shortest there
  picoseconds first_reduce{};      ///< likewise of what it waits for
  picoseconds reduce_end{};        ///< the same of the offloads after the last backward
  picoseconds host_every{};        ///< accumulation in one micro-batch
  picoseconds host_last{};         ///< host work for the last micro-batch's gradients
  block_id last_closed{};          ///< first block whose end lets the last offload start
  picoseconds host_end{};          ///< host work for what that one brings
  picoseconds device_before{};     ///< the device's own for gradients complete before those
  picoseconds host_updates{};      ///< updates that wait for the norm
  picoseconds host_all{};          ///< all of it in one step
  picoseconds device_every{};      ///< accumulation before the last backward ends
  picoseconds device_every_end{};  ///< accumulation after it
  picoseconds device_last{};       ///< the same two for the last micro-batch, with norms
  picoseconds device_last_end{};
  picoseconds device_norm_end{};     ///< of it, up to the last norm
  picoseconds device_reduce{};       ///< the shortest reduction that it waits for
  picoseconds gathers_updated{};     ///< of persistent values, after their updates
  picoseconds shortest_updated{};    ///< of them
  picoseconds device_around{};       ///< accumulation on one side or the other of that end
  picoseconds device_last_around{};  ///< the same for the last micro-batch, with norms
  bool host_ends = false;      ///< a moving chunk's gradient is complete with the last backward
  bool device_ends = false;    ///< a persistent chunk's is
  bool device_closes = false;  ///< a contribution to one is
  picoseconds device_updates_time{};  ///< updates that wait for the norm
};

/// How much of a placement is known. What isn't counts for nothing, so that a bound on the time
/// holds for every way to decide it.
enum class decided : std::uint8_t {
  persistence,  ///< but not where other chunks are updated
  sites,        ///< but not which updates are deferred
  all
};

}  // namespace protrain::inline v0::cost
