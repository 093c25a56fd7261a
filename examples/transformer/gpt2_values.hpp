// SPDX-License-Identifier: Apache-2.0
#pragma once
// Initial values of a GPT-2.

#include "protrain/core/philox.hpp"
#include "protrain/model/gpt2.hpp"
#include "protrain/model/parameter.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace transformer {

using protrain::model::gpt2_config;

/// GPT-2's initial values, a function of seed, parameter name and element alone.
struct initial_values {
  gpt2_config config;
  std::uint64_t seed = 1;

  void operator()(protrain::model::parameter const& p, std::span<float> values) const {
    std::string_view const name = p.name.view();
    auto const draws = protrain::initial_stream(seed, protrain::hash_name(name));
    bool const norm = name.find("ln_") != std::string_view::npos && name.ends_with(".weight");
    bool const residual = name.ends_with("c_proj.weight");
    double const spread =
        residual ? config.initializer_range / std::sqrt(2.0 * static_cast<double>(config.layers))
                 : config.initializer_range;
    if (norm || name.ends_with(".bias")) {
      std::ranges::fill(values, norm ? 1.0F : 0.0F);
      return;
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(spread) * draws.normal(i);
    }
  }
};

}  // namespace transformer
