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

/// Elements of all parameters; those that a token saves per layer, without the probabilities.
struct rough_size {
  double parameters;
  double saved;
};

rough_size rough(gpt2_config const& m) {
  auto const c = static_cast<double>(m.hidden);
  auto const f = static_cast<double>(m.inner);
  auto const table = static_cast<double>(m.vocabulary) + static_cast<double>(m.positions);
  return {2 * table * c + static_cast<double>(m.layers) * (4 * c * c + 2 * c * f), 16 * c + 4 * f};
}

rough_size rough(llama_config const& m) {
  auto const c = static_cast<double>(m.hidden);
  auto const a = static_cast<double>(m.query_width());
  auto const f = static_cast<double>(m.inner);
  return {static_cast<double>(llama_parameter_count(m)), 8 * c + 8 * a + 6 * f};
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

double rough_bytes(protrain::model::config const& config, job const& j) {
  return std::visit(
      [&](auto const& c) {
        rough_size const size = rough(c);
        auto const tokens = static_cast<double>(j.sequence);
        double const rows = tokens * static_cast<double>(j.micro_batch);
        double const saved = 4 * rows * (size.saved + 2 * tokens * static_cast<double>(c.heads));
        return 16 * size.parameters +
               saved * static_cast<double>(c.layers) * static_cast<double>(j.accumulate);
      },
      config);
}

}  // namespace cli
