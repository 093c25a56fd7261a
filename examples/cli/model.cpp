// SPDX-License-Identifier: Apache-2.0
// The only translation unit of the examples that knows the blocks' types.

#include "examples/cli/model.hpp"

#include "examples/transformer/gpt2.hpp"
#include "examples/transformer/llama.hpp"

#include <memory>
#include <utility>
#include <variant>

namespace cli {
namespace {

using protrain::model::gpt2_config;
using protrain::model::job;
using protrain::model::llama_config;

template <class T>
auto make(gpt2_config const& c) {
  return transformer::make_gpt2<T>(c);
}
template <class T>
auto make(llama_config const& c) {
  return transformer::make_llama<T>(c);
}

transformer::initial_values values_of(gpt2_config const& c, std::uint64_t seed) {
  return {c, seed};
}
transformer::llama_values values_of(llama_config const& c, std::uint64_t seed) { return {c, seed}; }

template <class T, class Config>
built_model build(Config const& config, job const& j) {
  auto model = make<T>(config);
  auto const blocks = std::make_shared<decltype(model)>(std::move(model));
  return {.blocks = blocks, .table = blocks->entries(j)};
}

}  // namespace

built_model build_model(protrain::model::config const& config, job const& j) {
  return std::visit(
      [&](auto const& c) {
        return j.type == protrain::dtype::bf16 ? build<protrain::bfloat16>(c, j)
                                               : build<float>(c, j);
      },
      config);
}

loader initial_values(protrain::model::config const& config, std::uint64_t seed) {
  return std::visit([&](auto const& c) -> loader { return values_of(c, seed); }, config);
}

}  // namespace cli
