// SPDX-License-Identifier: Apache-2.0
#pragma once
// Which part of each chunk a rank holds.

#include "protrain/chunk/layout.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Rank `rank`'s shard of `c`: tensors keep their positions in the table; offsets are from the
/// shard's start, and a tensor that the shard doesn't touch has no elements.
inline chunk::chunk shard_of(chunk::chunk const& c, std::uint64_t rank, std::uint64_t ranks) {
  chunk::chunk out = c;
  out.elements = c.elements / ranks;
  std::uint64_t const begin = rank * out.elements;
  std::uint64_t const end = begin + out.elements;
  for (chunk::placed_tensor& t : out.tensors) {
    std::uint64_t const from = std::clamp(t.offset, begin, end);
    std::uint64_t const to = std::clamp(t.offset + t.elements, begin, end);
    t.offset = from - begin;
    t.elements = to - from;
  }
  return out;
}

/// Elements of a tensor that lie in the shards of lower ranks.
inline std::uint64_t before_shard(chunk::placed_tensor const& whole,
                                  chunk::chunk const& c,
                                  std::uint64_t rank,
                                  std::uint64_t ranks) {
  std::uint64_t const begin = rank * (c.elements / ranks);
  return begin <= whole.offset ? 0 : std::min(begin - whole.offset, whole.elements);
}

inline std::vector<chunk::chunk> shards_of(chunk::layout const& l,
                                           std::uint64_t rank,
                                           std::uint64_t ranks) {
  std::vector<chunk::chunk> out;
  out.reserve(l.chunks.size());
  for (chunk::chunk const& c : l.chunks) {
    out.push_back(shard_of(c, rank, ranks));
  }
  return out;
}

/// What lies of `t` in the `n` elements from `begin` on, at its place from there.
inline chunk::placed_tensor part_of(chunk::placed_tensor t, std::uint64_t begin, std::uint64_t n) {
  std::uint64_t const from = std::clamp(t.offset, begin, begin + n);
  std::uint64_t const to = std::clamp(t.offset + t.elements, begin, begin + n);
  t.offset = from - begin;
  t.elements = to - from;
  return t;
}

}  // namespace protrain::inline v0::runtime::detail
