// SPDX-License-Identifier: Apache-2.0
#pragma once
// Initial values of a LLaMA.

#include "protrain/core/philox.hpp"
#include "protrain/model/llama.hpp"
#include "protrain/model/parameter.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace transformer {

/// Norms are 1, everything else is normal: a function of seed, parameter name and element alone.
struct llama_values {
  protrain::model::llama_config config;
  std::uint64_t seed = 1;

  void operator()(protrain::model::parameter const& p, std::span<float> values) const {
    std::string_view const name = p.name.view();
    auto const draws = protrain::initial_stream(seed, protrain::hash_name(name));
    bool const norm = name.ends_with("norm.weight");
    auto const spread = static_cast<float>(config.initializer_range);
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = norm ? 1.0F : spread * draws.normal(i);
    }
  }
};

}  // namespace transformer
