// SPDX-License-Identifier: Apache-2.0
#pragma once
// Work on a chunk's elements, shared out to threads where it is the cpu queue's.

#include "protrain/chunk/layout.hpp"
#include "protrain/core/queue.hpp"
#include "protrain/device/workers.hpp"
#include "protrain/optim/exact_sum.hpp"
#include "protrain/optim/pieces.hpp"
#include "protrain/optim/threaded.hpp"
#include "protrain/runtime/kernels.hpp"

#include <cstdint>
#include <cstring>

namespace protrain::inline v0::runtime::detail {

class cpu_work {
 public:
  explicit cpu_work(std::uint32_t threads) : crew_(threads) {}

  std::uint32_t threads() const noexcept { return crew_.size(); }

  /// Calls f(piece) for pieces that make up the chunk's elements: on queue `cpu` each on a thread
  /// of its own, on any other queue one piece, here. One task of queue `cpu` at a time.
  template <class F>
  void in_pieces(queue_id q, chunk::chunk const& c, F const& f) {
    if (q == queue_id::cpu) {
      optim::in_pieces(crew_, c.elements, f);
    } else {
      f(optim::element_range{0, c.elements});
    }
  }

  /// Adds the squares of a chunk's gradient to the sum in `cell`.
  void add_norm(queue_id q, chunk::chunk const& c, chunk_arrays const& a, std::byte* cell) {
    optim::exact_sum sum;
    std::memcpy(&sum, cell, sizeof sum);
    {
      optim::shared_sum all(sum);
      in_pieces(q, c, [&](optim::element_range const& piece) {
        optim::exact_sum own;
        add_squares(own, c, a, piece);
        all.merge(own);
      });
    }
    std::memcpy(cell, &sum, sizeof sum);
  }

 private:
  device::workers crew_;
};

}  // namespace protrain::inline v0::runtime::detail
