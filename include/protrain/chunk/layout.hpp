// SPDX-License-Identifier: Apache-2.0
#pragma once
// Chunks: which tensor lies where. A layout is a pure function of the parameter table, the blocks
// and the chunk capacity.

#include "protrain/core/ids.hpp"
#include "protrain/core/math.hpp"
#include "protrain/trace/trace.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace protrain::inline v0::chunk {

/// One tensor inside a chunk. `offset` is in elements, a multiple of `element_granule`.
struct placed_tensor {
  parameter_id parameter;
  std::uint64_t offset = 0;
  std::uint64_t elements = 0;  ///< without padding
  bool operator==(placed_tensor const&) const = default;
};

/// Tensors that move together. `elements` includes padding and is a multiple of
/// `element_granule` times the world size; 0 for a chunk of zero-size tensors only.
struct chunk {
  bool trainable = true;
  bool oversize = false;  ///< one tensor larger than the capacity, in a slot of its own
  std::uint64_t elements = 0;
  std::uint64_t payload = 0;  ///< elements without padding
  std::vector<placed_tensor> tensors{};
  std::vector<block_id> blocks{};  ///< users of its tensors that aren't empty, in execution order
  bool operator==(chunk const&) const = default;
};

/// Where a parameter lies.
struct location {
  chunk_id owner;
  std::uint64_t offset = 0;  ///< elements
  bool operator==(location const&) const = default;
};

/// All chunks of a job, ordered by first use.
struct layout {
  std::uint64_t capacity = 0;  ///< elements of a regular slot
  std::vector<chunk> chunks{};
  std::vector<location> where{};                   ///< by parameter
  std::vector<std::vector<chunk_id>> chunks_of{};  ///< by block: what it needs, ascending
  bool operator==(layout const&) const = default;

  constexpr chunk const& operator[](chunk_id c) const {
    PROTRAIN_EXPECT(c.index() < chunks.size(), "chunk outside the layout");
    return chunks[c.index()];
  }
};

namespace detail {

/// Elements that parameter `i` occupies inside a chunk; in a debugging job with a guard.
constexpr std::uint64_t slot_elements(trace::trace const& t, std::size_t i) {
  std::uint64_t const own = elements(t.parameters[i]);
  return round_up(own, element_granule) + (t.job.debug && own > 0 ? element_granule : 0);
}

constexpr void insert_sorted(auto& list, auto value) {
  auto const at = std::lower_bound(list.begin(), list.end(), value);
  if (at == list.end() || *at != value) {
    list.insert(at, value);
  }
}

/// Packs the tensors of blocks into chunks; trainable and frozen ones never share.
struct packer {
  trace::trace const& facts;
  std::uint64_t capacity;
  std::vector<chunk> chunks{};
  std::size_t open[2] = {none, none};  // by trainability: the chunk that still takes tensors

  static constexpr std::size_t none = std::numeric_limits<std::size_t>::max();

  constexpr void append(std::size_t at, std::size_t parameter) {
    model::parameter const& p = facts.parameters[parameter];
    chunk& c = chunks[at];
    c.tensors.push_back({make_id<parameter_id>(parameter), c.elements, elements(p)});
    c.elements = checked_add(c.elements, slot_elements(facts, parameter));
    c.payload = checked_add(c.payload, elements(p));
    for (block_id const b : p.uses) {
      if (elements(p) > 0) {
        insert_sorted(c.blocks, b);
      }
    }
  }

  constexpr std::size_t start(bool trainable, bool oversize) {
    chunks.push_back({.trainable = trainable, .oversize = oversize});
    return chunks.size() - 1;
  }

  /// One block's tensors of one trainability: together if they fit a chunk, else cut between
  /// tensors; a tensor above the capacity gets a chunk of its own.
  constexpr void add_group(std::span<std::size_t const> group, bool trainable) {
    std::uint64_t regular = 0;
    for (std::size_t const i : group) {
      std::uint64_t const n = slot_elements(facts, i);
      regular = checked_add(regular, n <= capacity ? n : 0);
    }
    std::size_t& current = open[trainable ? 1 : 0];
    if (current != none && regular <= capacity && chunks[current].elements > capacity - regular) {
      current = none;
    }
    for (std::size_t const i : group) {
      std::uint64_t const n = slot_elements(facts, i);
      if (n > capacity) {
        append(start(trainable, true), i);
        continue;
      }
      if (current == none || chunks[current].elements > capacity - n) {
        current = start(trainable, false);
      }
      append(current, i);
    }
  }
};

/// Groups of one block: parameter indices it owns with that trainability, in table order.
constexpr std::vector<std::size_t> owned_by(trace::trace const& t,
                                            std::vector<std::vector<std::size_t>> const& owned,
                                            std::size_t block,
                                            bool trainable) {
  std::vector<std::size_t> out{};
  for (std::size_t const i : owned[block]) {
    if (t.parameters[i].trainable == trainable) {
      out.push_back(i);
    }
  }
  return out;
}

/// By block: the parameters whose first use it is.
constexpr std::vector<std::vector<std::size_t>> owners(trace::trace const& t) {
  std::vector<std::vector<std::size_t>> owned(t.blocks.size(), std::vector<std::size_t>{});
  for (std::size_t i = 0; i < t.parameters.size(); ++i) {
    PROTRAIN_EXPECT(!t.parameters[i].uses.empty(), "a parameter that no block uses");
    PROTRAIN_EXPECT(t.parameters[i].uses.front().index() < owned.size(), "unknown block");
    owned[t.parameters[i].uses.front().index()].push_back(i);
  }
  return owned;
}

constexpr void index_layout(layout& out, trace::trace const& t) {
  out.where.assign(t.parameters.size(), {});
  out.chunks_of.assign(t.blocks.size(), {});
  for (std::size_t c = 0; c < out.chunks.size(); ++c) {
    auto const id = make_id<chunk_id>(c);
    for (placed_tensor const& p : out.chunks[c].tensors) {
      out.where[p.parameter.index()] = {id, p.offset};
    }
    for (block_id const b : out.chunks[c].blocks) {
      out.chunks_of[b.index()].push_back(id);
    }
  }
}

}  // namespace detail

/// The layout with regular chunks of at most `capacity` elements (rounded up to a granule per
/// rank). O(parameters + blocks) tensors, never O(elements).
constexpr layout make_layout(trace::trace const& t, std::uint64_t capacity) {
  std::uint64_t const step = checked_mul(element_granule, t.job.world);
  detail::packer pack{t, round_up(std::max<std::uint64_t>(capacity, 1), step), {}};
  auto const owned = detail::owners(t);
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    for (bool const trainable : {true, false}) {
      std::vector<std::size_t> const group = detail::owned_by(t, owned, b, trainable);
      if (!group.empty()) {
        pack.add_group(group, trainable);
      }
    }
  }
  layout out{.capacity = pack.capacity, .chunks = std::move(pack.chunks)};
  for (chunk& c : out.chunks) {
    c.elements = round_up(c.elements, step);
  }
  detail::index_layout(out, t);
  return out;
}

/// Padding of a layout in elements: unused ends of regular slots, and what rounding adds to
/// oversize ones.
constexpr std::uint64_t waste(layout const& l) {
  std::uint64_t sum = 0;
  for (chunk const& c : l.chunks) {
    sum = checked_add(sum, (c.oversize ? c.elements : l.capacity) - c.payload);
  }
  return sum;
}

}  // namespace protrain::inline v0::chunk
