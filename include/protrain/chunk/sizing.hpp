// SPDX-License-Identifier: Apache-2.0
#pragma once
// How large a chunk is: the sizing policy.

#include "protrain/chunk/layout.hpp"

#include <concepts>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::chunk {

struct sizing_tag {};

/// Proposes chunk capacities, best first. Laws (test/law/sizing.hpp): at least one; each positive,
/// a multiple of `element_granule` times the world size, none twice; equal inputs give equal
/// answers.
template <class P>
concept sizing_policy = std::regular<P> && std::same_as<typename P::policy_tag, sizing_tag> &&
                        requires(P const& p, trace::trace const& t) {
                          { p.capacities(t) } -> std::same_as<std::vector<std::uint64_t>>;
                        };

namespace detail {

/// Elements of the largest group (one block, one trainability) among blocks, leaving out tensors
/// above `limit`; only blocks of `only` when that is valid.
constexpr std::uint64_t largest_group(trace::trace const& t, std::uint64_t limit, shape_id only) {
  auto const owned = owners(t);
  std::uint64_t best = 0;
  for (std::size_t b = 0; b < t.blocks.size(); ++b) {
    if (only.valid() && t.blocks[b] != only) {
      continue;
    }
    std::uint64_t sum[2] = {0, 0};
    for (std::size_t const i : owned[b]) {
      std::uint64_t const n = slot_elements(t, i);
      std::uint64_t& s = sum[t.parameters[i].trainable ? 1 : 0];
      s = checked_add(s, n <= limit ? n : 0);
    }
    best = std::max({best, sum[0], sum[1]});
  }
  return best;
}

/// The model's body: of the shapes that repeat, or of all where none does, the one whose blocks own
/// most elements together.
constexpr shape_id dominant_shape(trace::trace const& t) {
  std::vector<std::uint64_t> total(t.shapes.size(), 0);
  std::vector<std::uint64_t> count(t.shapes.size(), 0);
  bool repeats = false;
  for (shape_id const s : t.blocks) {
    repeats = ++count[s.index()] > 1 || repeats;
  }
  for (std::size_t i = 0; i < t.parameters.size(); ++i) {
    std::uint64_t& sum = total[t.blocks[t.parameters[i].uses.front().index()].index()];
    sum = checked_add(sum, slot_elements(t, i));
  }
  std::size_t best = t.blocks.front().index();
  for (std::size_t s = 0; s < total.size(); ++s) {
    bool const body = count[s] > 1 || !repeats;
    bool const better = total[s] > total[best] || (repeats && count[best] == 1);
    best = body && better ? s : best;
  }
  return make_id<shape_id>(best);
}

/// The grid's base: the largest block, tensors larger than a block of the model's body aside.
constexpr std::uint64_t base_capacity(trace::trace const& t) {
  constexpr std::uint64_t all = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t const body = largest_group(t, all, dominant_shape(t));
  return std::max<std::uint64_t>(largest_group(t, body, {}), 1);
}

}  // namespace detail

/// The paper's: one size for all, the one that wastes least. Sizes from the largest block
/// (oversize tensors aside) to four times it in steps of a sixteenth of it.
struct uniform_grid {
  using policy_tag = sizing_tag;
  constexpr std::vector<std::uint64_t> capacities(trace::trace const& t) const {
    std::uint64_t const step = checked_mul(element_granule, t.job.world);
    std::uint64_t const base = detail::base_capacity(t);
    std::vector<std::uint64_t> sizes;
    std::vector<std::uint64_t> wastes;
    for (std::uint64_t k = 16; k <= 64; ++k) {
      std::uint64_t const size = round_up(ceil_div(checked_mul(base, k), 16), step);
      if (!sizes.empty() && sizes.back() == size) {
        continue;
      }
      sizes.push_back(size);
      wastes.push_back(waste(make_layout(t, size)));
    }
    return by_waste(sizes, wastes);
  }
  bool operator==(uniform_grid const&) const = default;

 private:
  /// Insertion sort by (waste, size): stable_sort isn't a constant expression.
  static constexpr std::vector<std::uint64_t> by_waste(std::vector<std::uint64_t> sizes,
                                                       std::vector<std::uint64_t> wastes) {
    for (std::size_t i = 1; i < sizes.size(); ++i) {
      for (std::size_t j = i; j > 0 && wastes[j] < wastes[j - 1]; --j) {
        std::swap(sizes[j], sizes[j - 1]);
        std::swap(wastes[j], wastes[j - 1]);
      }
    }
    return sizes;
  }
};
static_assert(sizing_policy<uniform_grid>);

}  // namespace protrain::inline v0::chunk
