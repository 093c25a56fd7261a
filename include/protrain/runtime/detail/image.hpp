// SPDX-License-Identifier: Apache-2.0
#pragma once
// A rank's share of a chunk on the heap, for loading and reading.

#include "protrain/chunk/layout.hpp"
#include "protrain/runtime/detail/shards.hpp"
#include "protrain/runtime/kernels.hpp"
#include "protrain/update/state_format.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Values and state of one chunk, as homes hold them: a replicated chunk has every shard's values,
/// another only the rank's own; state is the rank's own, or absent.
class chunk_image {
 public:
  chunk_image(chunk::chunk const& c,
              bool replicated,
              bool has_state,
              update::state_bytes const& b,
              std::uint64_t rank,
              std::uint64_t ranks)
      : chunk_(&c),
        bytes_(b),
        rank_(rank),
        ranks_(ranks),
        replicated_(replicated),
        value_((replicated ? c.elements : c.elements / ranks) * b.value),
        state_(has_state ? c.elements / ranks * b.state : 0) {}

  std::span<std::byte> value() noexcept { return value_; }
  std::span<std::byte> state() noexcept { return state_; }

  /// Sets one tensor from all of its fp32 values.
  void write(model::state_format format, std::size_t tensor, std::span<float const> values) {
    for (std::uint64_t r = 0; r < ranks_; ++r) {
      if (replicated_ || r == rank_) {
        chunk::placed_tensor const part = shard_of(*chunk_, r, ranks_).tensors[tensor];
        if (part.elements > 0) {
          write_master(format, values.data() + skipped(tensor, r), part, arrays(r));
        }
      }
    }
  }

  /// The bytes that `read` needs of this rank: its shard of values, then its state.
  std::uint64_t share() const noexcept {
    return chunk_->elements / ranks_ * bytes_.value + state_.size();
  }
  void copy_share(std::byte* to) const {
    std::uint64_t const own = chunk_->elements / ranks_ * bytes_.value;
    std::byte const* const from = value_.data() + (replicated_ ? rank_ * own : 0);
    std::copy_n(from, own, to);
    std::copy_n(state_.data(), state_.size(), to + own);
  }

  /// One tensor's fp32 values from the shares of all ranks, one after the other.
  void read(model::state_format format,
            std::size_t tensor,
            std::span<std::byte> shares,
            std::span<float> values) const {
    std::uint64_t const own = chunk_->elements / ranks_ * bytes_.value;
    for (std::uint64_t r = 0; r < ranks_; ++r) {
      std::byte* const at = shares.data() + r * share();
      chunk::placed_tensor const part = shard_of(*chunk_, r, ranks_).tensors[tensor];
      if (part.elements > 0) {
        read_master(format,
                    values.data() + skipped(tensor, r),
                    part,
                    {.value = at,
                     .state = state_.empty() ? nullptr : at + own,
                     .value_type = bytes_.type,
                     .elements = chunk_->elements / ranks_});
      }
    }
  }

 private:
  std::uint64_t skipped(std::size_t tensor, std::uint64_t r) const {
    return before_shard(chunk_->tensors[tensor], *chunk_, r, ranks_);
  }
  chunk_arrays arrays(std::uint64_t r) noexcept {
    std::uint64_t const own = chunk_->elements / ranks_ * bytes_.value;
    return {.value = value_.data() + (replicated_ ? r * own : 0),
            .state = r == rank_ && !state_.empty() ? state_.data() : nullptr,
            .value_type = bytes_.type,
            .elements = chunk_->elements / ranks_};
  }

  chunk::chunk const* chunk_;
  update::state_bytes bytes_;
  std::uint64_t rank_;
  std::uint64_t ranks_;
  bool replicated_;
  std::vector<std::byte> value_;
  std::vector<std::byte> state_;
};

}  // namespace protrain::inline v0::runtime::detail
