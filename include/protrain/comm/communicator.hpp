// SPDX-License-Identifier: Apache-2.0
#pragma once
// The communicator concept: what a step needs from other ranks.

#include "protrain/core/dtype.hpp"
#include "protrain/device/device.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>

namespace protrain::inline v0::comm {

/// Ranks of one job. Laws (test/law/comm.hpp): every rank issues the same collectives in the same
/// order; `reduce_scatter_ordered` folds in fp32 from rank 0 upwards and rounds once to `type`,
/// whatever the owner of an element; a collective of 0 elements is a no-op.
///
/// * `rank()`, `size()`.
/// * `reduce_scatter_ordered(queue, data, elements, type)`: in place; this rank's shard of `data`
///   holds the sum afterwards. `elements` is a multiple of size().
/// * `all_gather(queue, data, bytes)`: in place at the rank's offset.
/// * `sum(n)`: of one integer over the ranks, exact; waits.
template <class C>
concept communicator =
    requires(C& c, C const& k, device::queue_ref q, std::byte* data, std::uint64_t n, dtype type) {
      { k.rank() } noexcept -> std::same_as<std::uint32_t>;
      { k.size() } noexcept -> std::same_as<std::uint32_t>;
      c.reduce_scatter_ordered(q, data, n, type);
      c.all_gather(q, data, n);
      { c.sum(n) } -> std::same_as<std::uint64_t>;
    };

}  // namespace protrain::inline v0::comm
