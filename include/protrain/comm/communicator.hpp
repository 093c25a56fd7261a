// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicator concept: what a step needs from other ranks.

#include "protrain/core/dtype.hpp"
#include "protrain/device/device.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace protrain::inline v0::comm {

/// Ranks of one job. Laws (test/law/comm.hpp): on each queue every rank issues the same collectives
/// in the same order, and queues don't wait for each other; an ordered reduction adds in fp32 from
/// rank 0 upwards and rounds once to `type`, whatever the owner of an element; a collective of 0
/// elements is legal, with null pointers too; one that can't be completed throws comm_error on
/// every rank.
///
/// * `rank()`, `size()`.
/// * `reduce_scatter_ordered(queue, data, staging, elements, type)`: `data` holds `elements`, a
///   multiple of W = size(), of fp32, bf16 or fp16; `staging` has as many bytes and overlaps
///   nothing. Afterwards this rank's shard [rank * elements / W, (rank + 1) * elements / W) of
///   `data` is the sum over the ranks; the other shards and `staging` are unspecified.
/// * `all_gather(queue, data, bytes_per_rank)`: in place, rank r's part at r * bytes_per_rank.
/// * `sum(n)`: of one integer over the ranks, exact; the total fits 64 bits. Waits.
/// * `abort(why)`: every rank that waits in a collective, or comes to one, throws a comm_error that
///   names this rank and says why.
///
/// The first two are called from inside a task, with its queue; `data` is device memory, on queue
/// `cpu` host memory. The last two are called on the thread that issues.
template <class C>
concept communicator = requires(C& c,
                                C const& k,
                                device::queue_ref q,
                                std::byte* data,
                                std::uint64_t n,
                                dtype type,
                                std::string_view why) {
  { k.rank() } noexcept -> std::same_as<std::uint32_t>;
  { k.size() } noexcept -> std::same_as<std::uint32_t>;
  c.reduce_scatter_ordered(q, data, data, n, type);
  c.all_gather(q, data, n);
  { c.sum(n) } -> std::same_as<std::uint64_t>;
  { c.abort(why) } noexcept;
};

/// Ranks that share this host's processors with `c`, itself included: a communicator whose ranks
/// are on several hosts has `local_size()`; of any other all ranks are here.
template <communicator C>
std::uint32_t local_ranks(C const& c) noexcept {
  if constexpr (requires {
                  { c.local_size() } noexcept -> std::same_as<std::uint32_t>;
                }) {
    return c.local_size();
  } else {
    return c.size();
  }
}

}  // namespace protrain::inline v0::comm
