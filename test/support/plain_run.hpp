// SPDX-License-Identifier: Apache-2.0
#pragma once
// One step's losses and gradients by a plain loop, without engine: what every plan must reproduce
// to the bit.

#include "protrain/block/standalone.hpp"
#include "protrain/core/bfloat16.hpp"
#include "protrain/model/job.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::test {

/// Gradients by row of the parameter table in fp32, contributions added by micro-batch, then by use
/// in backward order; frozen parameters have none.
struct plain_result {
  std::vector<float> losses{};  ///< by global sample
  std::vector<std::vector<float>> gradients{};
  bool operator==(plain_result const&) const = default;
};

inline float gradient_element(tensor_view const& t, std::uint64_t i) {
  return t.type == dtype::bf16 ? to_float(t.as<bfloat16 const>()[i]) : t.as<float const>()[i];
}

/// Adds what block `b` contributed. The first contribution is stored, not added to zero.
inline void add_contributions(block::standalone const& owner,
                              block::table const& t,
                              block_id b,
                              std::vector<std::vector<float>>& sums) {
  auto const& parameters = t.blocks[b.index()].parameters;
  for (std::uint32_t i = 0; i < parameters.size(); ++i) {
    tensor_view const c = owner.contribution(b, {i});
    std::vector<float>& sum = sums[parameters[i].id.index()];
    bool const first = sum.empty();
    for (std::uint64_t k = 0; c && k < c.elements(); ++k) {
      float const g = gradient_element(c, k);
      if (first) {
        sum.push_back(g);
      } else {
        sum[k] += g;
      }
    }
  }
}

/// Runs the micro-batches of one step. `load(owner, micro_batch)` fills the batch tensors. With
/// `recompute` every block's saved tensors are dropped and rebuilt before its backward.
template <class Load>
plain_result plain_step(block::standalone& owner,
                        block::table const& t,
                        model::job const& job,
                        std::uint64_t step,
                        Load const& load,
                        bool recompute = false) {
  plain_result out{.gradients = std::vector<std::vector<float>>(t.parameters.size())};
  for (std::uint64_t m = 0; m < job.accumulate; ++m) {
    std::uint64_t const first = (step * job.accumulate + m) * job.micro_batch;
    owner.begin({.step = step,
                 .first_sample = first,
                 .loss_scale = 1 / static_cast<float>(tokens_per_step(job))});
    load(owner, m);
    owner.forward();
    for (std::size_t b = t.blocks.size(); b > 0; --b) {
      auto const id = make_id<block_id>(b - 1);
      if (recompute) {
        owner.forward(id, block::pass::recompute);
      }
      owner.backward(id);
      add_contributions(owner, t, id, out.gradients);
    }
    out.losses.insert(out.losses.end(), owner.losses().begin(), owner.losses().end());
  }
  return out;
}

}  // namespace protrain::test
