// SPDX-License-Identifier: Apache-2.0
#pragma once
// A program: a segment of training as a flat list of instructions on named queues, with explicit
// dependencies and addresses. The same value is verified, simulated and executed by every rank.

#include "protrain/core/ids.hpp"
#include "protrain/core/queue.hpp"

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace protrain::inline v0::schedule {

/// The closed list of instructions. Operands by role, in this order ([..] where it applies; `rw`
/// means read and write):
///
/// | opcode         | queue        | operands                                                    |
/// | batch_load     | h2d          | read batch (host), write batch (device)                     |
/// | zero           | compute, cpu | write gradient, loss or norm                                |
/// | upload         | h2d          | read value (host), write value (device)                     |
/// | gather         | gather       | rw value: own shard to all of it (several ranks only)       |
/// | forward        | compute      | read value.., [read batch], [read input], [write output],   |
/// |                |              | [write saved], [write rebuilt], [write scratch], rw loss    |
/// | recompute      | compute      | as forward without loss; output is a temporary              |
/// | rebuild        | compute      | read value.., [read batch], [read input], [read saved],     |
/// |                |              | [write rebuilt], [write scratch]                            |
/// | backward       | compute      | read value.., [read batch], [read input],                   |
/// |                |              | [read output_gradient], [write input_gradient],             |
/// |                |              | [read saved], [read rebuilt], rw gradient..,                |
/// |                |              | [write scratch]                                             |
/// | swap_out       | d2h          | read saved (device), write saved (host)                     |
/// | swap_in        | h2d          | read saved (host), write saved (device)                     |
/// | reduce         | reduce       | rw gradient, [write staging if there are several ranks]     |
/// | offload        | d2h          | read gradient (device), write gradient or store (host)      |
/// | accumulate     | compute, cpu | read gradient, rw store                                     |
/// | norm_partial   | compute, cpu | read gradient or store, rw norm                             |
/// | norm_read      | d2h          | read norm (device), write norm_copy (host)                  |
/// | norm_exchange  | cpu          | read norm (host), [read norm_copy], write norms             |
/// |                |              | (several ranks only)                                        |
/// | norm_finish    | cpu          | read norm (host), [read norm_copy] or, with several ranks,  |
/// |                |              | read norms; write report,                                   |
/// |                |              | [write scalars (host) if the job needs the norm]            |
/// | scalars_upload | h2d          | read scalars (host), write scalars (device)                 |
/// | update         | compute, cpu | rw value, rw state, read gradient or store, read scalars    |
/// | state_in       | h2d          | of one part of a streamed chunk, to a slot: write value     |
/// |                |              | (device), read value (host), write state (device),          |
/// |                |              | read state.. (host: of each of its arrays), [write store    |
/// |                |              | (device), read store (host)]                                |
/// | update_part    | compute      | rw value, rw state, read gradient or store, read scalars    |
/// | state_out      | d2h          | read value (device), write value (host), read state         |
/// |                |              | (device), write state.. (host)                              |
/// | loss_read      | d2h          | read loss (device), write loss (host)                       |
/// | loss_exchange  | cpu          | rw loss (host): own to all ranks' (several ranks only)      |
///
/// With several ranks an instruction works on its rank's shard where the data are sharded: values
/// on the host, state, store, and a gradient once it is reduced.
enum class opcode : std::uint8_t {
  batch_load,
  zero,
  upload,
  gather,
  forward,
  recompute,
  rebuild,
  backward,
  swap_out,
  swap_in,
  reduce,
  offload,
  accumulate,
  norm_partial,
  norm_read,
  norm_exchange,
  norm_finish,
  scalars_upload,
  update,
  state_in,
  update_part,
  state_out,
  loss_read,
  loss_exchange,
};
inline constexpr std::size_t opcode_count = 24;

constexpr std::string_view name_of(opcode op) noexcept {
  constexpr std::string_view names[opcode_count] = {
      "batch_load", "zero",         "upload",      "gather",        "forward",     "recompute",
      "rebuild",    "backward",     "swap_out",    "swap_in",       "reduce",      "offload",
      "accumulate", "norm_partial", "norm_read",   "norm_exchange", "norm_finish", "scalars_upload",
      "update",     "state_in",     "update_part", "state_out",     "loss_read",   "loss_exchange"};
  return names[static_cast<std::size_t>(op)];
}

/// What an operand is to its instruction.
enum class role : std::uint8_t {
  value,            ///< working parameters of `operand::chunk`
  state,            ///< its optimizer state
  gradient,         ///< a contribution to `operand::span`, in gradient dtype
  store,            ///< the chunk's gradient over all contributions: fp32 when there are several
  input,            ///< x
  output,           ///< y
  input_gradient,   ///< dx
  output_gradient,  ///< dy
  saved,            ///< all of it, or what the block's save level keeps
  rebuilt,          ///< what the level drops: written by forward, made again by the rebuild
  scratch,
  batch,
  loss,       ///< one fp32 per sample of the micro-batch
  norm,       ///< exact sum of squares
  norm_copy,  ///< the device's sum on the host
  norms,      ///< the sums of all ranks, one cell each
  staging,    ///< of an ordered reduction: as large as what it reduces
  scalars,    ///< what the update multiplies gradients by
  report,     ///< norm and clip factor, for the caller
};

enum class access : std::uint8_t { read, write, read_write };

constexpr bool reads(access a) noexcept { return a != access::write; }
constexpr bool writes(access a) noexcept { return a != access::read; }

/// A byte range of an allocation that an instruction touches. Rank r's range starts at
/// offset + r * stride, and further by `advance` for each micro-batch that the step's earlier
/// programs ran: programs are the same on every rank and in every repetition.
struct operand {
  role what = role::value;
  access mode = access::read;
  allocation_id allocation{};
  std::uint64_t offset = 0;  ///< bytes from the allocation's start, on rank 0
  std::uint64_t bytes = 0;
  std::uint64_t stride = 0;   ///< bytes from one rank's part to the next; 0: the same on every rank
  std::uint64_t advance = 0;  ///< bytes from one micro-batch's part to the next; 0: one for all
  chunk_id chunk{};           ///< of value, state, gradient and store
  span_id span{};             ///< of gradient
  bool operator==(operand const&) const = default;

  constexpr std::uint64_t offset_on(std::uint64_t rank, std::uint64_t before = 0) const {
    return offset + rank * stride + before * advance;
  }
};

/// Memory that is live at instructions [begin, end). Ranges of allocations that are live at the
/// same instruction never overlap.
struct allocation {
  space where = space::device;
  category what = category::scratch;
  std::uint64_t offset = 0;  ///< multiple of address_granule, from the arena's start
  std::uint64_t bytes = 0;   ///< as asked for; it occupies granules(bytes)
  std::uint32_t begin = 0;
  std::uint32_t end = 0;
  bool carried = false;  ///< holds contents from step to step; live throughout
  block_id block{};      ///< whose tensor it is, where that makes sense
  chunk_id chunk{};
  std::uint32_t micro_batch = 0;
  bool operator==(allocation const&) const = default;
};

struct instruction {
  opcode op = opcode::zero;
  queue_id queue = queue_id::compute;
  std::uint32_t micro_batch = 0;
  block_id block{};
  chunk_id chunk{};
  span_id span{};
  /// Of the values it reads, where 1 is what this step's passes use: an update of 0 was left by the
  /// step before, an update of 1 is this step's own.
  std::uint32_t version = 0;
  std::uint32_t part = 0;    ///< of a streamed chunk
  std::uint32_t level = 0;   ///< of forward, rebuild, backward: what is kept in between; 0: all
  std::uint64_t amount = 0;  ///< bytes of a copy or fill; elements of norm, accumulate, update
  std::uint32_t first_operand = 0;
  std::uint32_t operand_count = 0;
  std::uint32_t first_dependency = 0;
  std::uint32_t dependency_count = 0;
  bool operator==(instruction const&) const = default;
};

/// Part of a span: a tensor of the chunk, and whether this is its first contribution in a
/// micro-batch (uses in backward order).
struct span_tensor {
  std::uint32_t tensor = 0;  ///< position in chunk::chunk::tensors
  bool first = true;
  bool operator==(span_tensor const&) const = default;
};

/// The blocks whose backward passes fill one gradient slot of a chunk. No tensor occurs twice in a
/// span: each use of a tied tensor is a contribution of its own.
struct gradient_span {
  chunk_id chunk{};
  std::uint32_t ordinal = 0;           ///< among the chunk's spans, in backward order
  std::vector<block_id> blocks{};      ///< in backward order
  std::vector<span_tensor> tensors{};  ///< ascending
  bool operator==(gradient_span const&) const = default;
};

/// What a program is a program of. Carried memory lies at the same place in all segments of a job,
/// so that they may follow each other: step, resume, resume, flush, evaluate, step, ... A step of
/// many micro-batches is cut, so that programs don't grow with them: first (or first_resumed),
/// middle as often as it takes, last.
enum class segment : std::uint8_t {
  step,           ///< no update is left over; leaves the updates of deferred chunks behind
  resume,         ///< a step that first carries out what the one before left over
  flush,          ///< only that
  evaluate,       ///< forward passes and losses of one micro-batch; no update is left over
  first,          ///< a step's first micro-batches; no update is left over
  first_resumed,  ///< likewise, after what the step before left over
  middle,         ///< further micro-batches; leaves sums behind, as `first` does
  last,           ///< the last micro-batches and the step's end
};
inline constexpr std::size_t segment_count = 8;

constexpr std::string_view name_of(segment s) noexcept {
  constexpr std::string_view names[segment_count] = {
      "step", "resume", "flush", "evaluate", "first", "first_resumed", "middle", "last"};
  return names[static_cast<std::size_t>(s)];
}

/// True where updates that were left over are carried out.
constexpr bool resumes(segment s) noexcept {
  return s == segment::resume || s == segment::flush || s == segment::first_resumed;
}
/// True where gradients are made.
constexpr bool trains(segment s) noexcept { return s != segment::flush && s != segment::evaluate; }
/// True for the whole of a step.
constexpr bool whole(segment s) noexcept { return s == segment::step || s == segment::resume; }
/// True where a step ends: norm, updates, losses of all ranks.
constexpr bool closes(segment s) noexcept { return whole(s) || s == segment::last; }

struct program {
  std::uint64_t fingerprint = 0;  ///< of the trace it was compiled for
  segment part = segment::step;
  std::uint32_t micro_batches = 1;  ///< that it runs, each time
  std::uint32_t before = 0;         ///< micro-batches that the step has run before its first time
  std::uint32_t times = 1;          ///< that it runs in a step, one after the other
  std::uint64_t ranks = 1;
  std::vector<std::uint8_t> deferred{};  ///< by chunk: updated at the start of the next step
  /// By chunk: elements of a part of each rank's shard if the chunk is streamed, else 0. The last
  /// part is what is left.
  std::vector<std::uint64_t> part_elements{};
  std::vector<instruction> instructions{};
  std::vector<operand> operands{};
  std::vector<std::uint32_t> dependencies{};  ///< positions of earlier instructions
  std::vector<allocation> allocations{};      ///< in order of address assignment
  std::vector<gradient_span> spans{};
  bool operator==(program const&) const = default;

  constexpr std::span<operand const> operands_of(instruction const& i) const {
    return std::span(operands).subspan(i.first_operand, i.operand_count);
  }
  constexpr std::span<std::uint32_t const> dependencies_of(instruction const& i) const {
    return std::span(dependencies).subspan(i.first_dependency, i.dependency_count);
  }
};

/// Bytes of the fixed cells.
inline constexpr std::uint64_t norm_cell_bytes = 64;
inline constexpr std::uint64_t scalars_bytes = 16;
inline constexpr std::uint64_t report_bytes = 16;

}  // namespace protrain::inline v0::schedule
