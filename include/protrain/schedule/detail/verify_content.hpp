// SPDX-License-Identifier: Apache-2.0
#pragma once
// verify: what memory means. Symbolic contents of allocations instead of bytes.

#include "protrain/schedule/program.hpp"

#include <cstdint>
#include <vector>

namespace protrain::inline v0::schedule::detail {

enum class holds : std::uint8_t {
  nothing,            ///< undefined bytes
  value,              ///< of chunk `of`, after `count` updates
  state,              ///< likewise
  boundary,           ///< output of block `of` for `micro_batch`
  boundary_gradient,  ///< of that output
  saved,              ///< of block `of` for `micro_batch`: what level `count` keeps
  rebuilt,            ///< likewise: what that level drops
  contribution,       ///< to span `of` for `micro_batch`, of its first `count` blocks
  store,              ///< chunk `of`, its first `count` contributions; of this step, or of the
                      ///< one before when `micro_batch` is 1
  batch,              ///< batch tensors of `micro_batch`
  loss,               ///< losses of `micro_batch`, what its first `count` blocks added
  norm,               ///< squares of `count` chunks
  norm_copy,          ///< likewise, on its way from the device
  norms,              ///< likewise, of every rank
  scalars,            ///< of this step, or of the one before when `micro_batch` is 1; with the
                      ///< norm's factor when `count` is 1
  report,
};

struct content {
  holds what = holds::nothing;
  bool reduced = false;
  std::uint32_t of = 0;
  std::uint32_t micro_batch = 0;
  std::uint32_t count = 0;
  std::uint32_t part = 0;  ///< of value, state and store: 0 for the whole, else 1 + part
  bool operator==(content const&) const = default;

  /// Equal but for `count` and `reduced`: the same thing at another stage.
  constexpr bool same_thing(content const& o) const {
    return what == o.what && of == o.of && micro_batch == o.micro_batch && part == o.part;
  }
};

/// Contents of all allocations, by exact byte range: a range that was only partly written, or in
/// several pieces, holds nothing.
class contents {
 public:
  explicit constexpr contents(std::size_t allocations) : cells_(allocations, cell{}) {}

  constexpr content get(operand const& o) const {
    for (std::size_t i = o.allocation.index(); i != end; i = cells_[i].next) {
      if (cells_[i].offset == o.offset && cells_[i].bytes == o.bytes) {
        return cells_[i].now;
      }
    }
    return {};
  }

  constexpr void set(operand const& o, content const& now) {
    std::size_t exact = end;
    std::size_t last = o.allocation.index();
    for (std::size_t i = o.allocation.index(); i != end; i = cells_[i].next) {
      cell& c = cells_[i];
      if ((c.offset == o.offset && c.bytes == o.bytes) || c.bytes == 0) {
        exact = i;
      } else if (c.offset < o.offset + o.bytes && o.offset < c.offset + c.bytes) {
        c.now = {};
      }
      last = i;
    }
    if (exact == end) {
      exact = cells_.size();
      cells_[last].next = exact;
      cells_.push_back({});
    }
    cells_[exact].offset = o.offset;
    cells_[exact].bytes = o.bytes;
    cells_[exact].now = now;
  }

  /// True when no byte of the range was written or claimed yet.
  constexpr bool untouched(operand const& o) const {
    for (std::size_t i = o.allocation.index(); i != end; i = cells_[i].next) {
      cell const& c = cells_[i];
      if (c.offset < o.offset + o.bytes && o.offset < c.offset + c.bytes) {
        return false;
      }
    }
    return true;
  }

 private:
  static constexpr std::size_t end = ~std::size_t{0};
  struct cell {
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;  // 0: not in use yet, only in an allocation's first cell
    content now{};
    std::size_t next = end;
  };

  std::vector<cell> cells_;  // the first cell of each allocation, then all others
};

}  // namespace protrain::inline v0::schedule::detail
