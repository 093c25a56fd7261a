// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the closed form of the ProTrain paper (arXiv 2406.08334 v2) knows of a job: the quantities
// of its equations (2) to (11), whatever persists, is buffered, swapped or checkpointed.

#include "protrain/core/units.hpp"
#include "protrain/trace/trace.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::cost {

/// Times of one chunk's transfers, each once. Gather and reduce are over the ranks; upload and
/// offload move one rank's shard between host and device.
struct paper_transfers {
  picoseconds gather{};
  picoseconds upload{};
  picoseconds reduce{};
  picoseconds offload{};
  bool operator==(paper_transfers const&) const = default;
};

struct paper_chunk {
  picoseconds forward{};          ///< T_comp_fwd: of the blocks that run when this chunk is there
  picoseconds backward{};         ///< T_comp_bwd, without recomputation
  paper_transfers alone{};        ///< at uncontended rates
  paper_transfers beside_swap{};  ///< at the rates beside swapping; never less
  picoseconds gpu_optimizer{};    ///< update on the device, if persistent
  picoseconds cpu_optimizer{};    ///< update on the host, if not
  bytes persistent{};             ///< M_persist: on the device for good
  bytes own_slot{};               ///< of an oversize chunk that isn't persistent; else 0
  bool operator==(paper_chunk const&) const = default;
};

struct paper_block {
  std::uint32_t chunk = 0;  ///< position of the chunk that its compute counts in; never descends
  trace::pin pinned = trace::pin::free;
  picoseconds forward{};
  picoseconds backward{};
  picoseconds swap_out{};
  picoseconds swap_in{};
  bytes swap_saving{};        ///< M_swap: less at the end of forward when swapped
  bytes checkpoint_saving{};  ///< M_ckpt: less at the end of forward when checkpointed
  bool operator==(paper_block const&) const = default;
};

/// Signed change of device memory, in bytes.
using memory_delta = std::int64_t;

/// One backward operator. Current deltas last; peak deltas are the most above the level at which
/// they start.
struct paper_operator {
  std::uint32_t block = 0;
  bool first = true;             ///< of its block's backward operators
  memory_delta current_prior{};  ///< before it, since the operator before (inter-operator delta)
  memory_delta peak_prior{};
  memory_delta current_own{};  ///< while it runs, its activations aside (intra-operator delta)
  memory_delta peak_own{};
  bytes activations{};  ///< M_act: saved by forward for it
  bool operator==(paper_operator const&) const = default;
};

/// Fewest and most buffers that make sense with some number of persistent chunks.
struct paper_buffers {
  std::uint32_t fewest = 0;
  std::uint32_t most = 0;
  bool operator==(paper_buffers const&) const = default;
};

/// The facts of one job, layout and machine; `make_paper_job` makes them from a trace.
struct paper_job {
  std::vector<paper_chunk> chunks{};
  std::vector<paper_block> blocks{};
  std::vector<paper_operator> operators{};  ///< in the order of backward
  std::vector<paper_buffers> buffers{};     ///< by number of persistent chunks, 0 to all
  bytes buffer{};                           ///< M_buffer: one of them
  bytes forward_end{};                      ///< M_fwd_end: without activations and model states
  std::uint32_t interval = 1;               ///< N_interval
  /// Factor of (11) in thousandths. The paper prints none; 1.10 is what others use.
  std::uint32_t alpha = 1100;
  /// Our inference on (5): gradients leave beside the next chunk's backward, the last ones after
  /// all. False: beside their own chunk's, as the equation stands.
  bool drain = true;
  // What the paper's equations leave out, and their form without it:
  std::uint32_t micro_batches = 1;  ///< 1: one forward and one backward make a step
  bool waits = false;               ///< false: updates don't wait for the norm of all gradients
  bool operator==(paper_job const&) const = default;
};

/// The decisions of (1).
struct paper_numbers {
  std::uint32_t persist = 0;
  std::uint32_t buffer = 0;
  std::uint32_t swap = 0;
  std::uint32_t checkpoint = 0;
  auto operator<=>(paper_numbers const&) const = default;
};

}  // namespace protrain::inline v0::cost
