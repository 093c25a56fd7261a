// SPDX-License-Identifier: Apache-2.0
#pragma once
// The flags that say which part of a model is trained.

#include "examples/cli/flags.hpp"
#include "protrain/core/dtype.hpp"
#include "protrain/model/decoder.hpp"
#include "protrain/model/parameter.hpp"

#include <vector>

namespace cli {

/// `--trainable`, `--lora-rank` and `--lora-targets`.
void add_part_flags(flags& f);

/// Whether one of them is given.
bool trains_part(flags const& f);

/// The decoder's parameters: frozen but for those that `--trainable` names; with adapters, all others
/// are frozen. Throws usage_error: no regular expression, one that names nothing, targets without a rank.
std::vector<protrain::model::parameter> read_parameters(flags const& f,
                                                        protrain::model::decoder_config const& c,
                                                        protrain::dtype type);

}  // namespace cli
