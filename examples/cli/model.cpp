// SPDX-License-Identifier: Apache-2.0
// The only translation unit of the examples that knows the blocks' types.

#include "examples/cli/model.hpp"

#include "examples/transformer/gpt2.hpp"

#include <algorithm>

namespace cli {
namespace {

template <class T>
built_model build(protrain::model::gpt2_config const& config, protrain::model::job const& job) {
  using stack = decltype(transformer::make_gpt2<T>(config));
  auto const blocks = std::make_shared<stack>(transformer::make_gpt2<T>(config));
  return {.blocks = blocks, .table = blocks->entries(job)};
}

}  // namespace

built_model build_gpt2(protrain::model::gpt2_config const& config,
                       protrain::model::job const& job) {
  return job.type == protrain::dtype::bf16 ? build<protrain::bfloat16>(config, job)
                                           : build<float>(config, job);
}

loader initial_values(protrain::model::gpt2_config const& config, std::uint64_t seed) {
  return transformer::initial_values{config, seed};
}

double rough_bytes(protrain::model::gpt2_config const& config, protrain::model::job const& job) {
  auto const c = static_cast<double>(config.hidden);
  auto const f = static_cast<double>(config.inner);
  auto const layers = static_cast<double>(config.layers);
  auto const table = static_cast<double>(config.vocabulary) + static_cast<double>(config.positions);
  auto const samples = static_cast<double>(job.micro_batch);
  auto const tokens = static_cast<double>(job.sequence);
  double const state = 16 * (2 * table * c + layers * (4 * c * c + 2 * c * f));
  double const saved =
      4 * samples * tokens * (16 * c + 4 * f + 2 * tokens * static_cast<double>(config.heads));
  return state + saved * layers * static_cast<double>(job.accumulate);
}

}  // namespace cli
