// SPDX-License-Identifier: Apache-2.0
#pragma once
// What the updates of one step have in common: the rule's values for each group of parameters, and
// the scalars that the norm decides.

#include "protrain/model/parameter.hpp"
#include "protrain/optim/update_rule.hpp"
#include "protrain/schedule/program.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace protrain::inline v0::runtime::detail {

/// Parameters that one set of step values serves.
struct parameter_group {
  bool decay = true;
  float learning_rate_scale = 1;
  bool operator==(parameter_group const&) const = default;
};

/// The distinct groups, and each parameter's.
struct parameter_groups {
  std::vector<parameter_group> members{};
  std::vector<std::uint32_t> of{};  ///< by parameter
};

inline parameter_groups groups_of(std::vector<model::parameter> const& parameters) {
  parameter_groups out;
  for (model::parameter const& p : parameters) {
    parameter_group const group{p.decay, p.learning_rate_scale};
    auto const at = std::ranges::find(out.members, group);
    out.of.push_back(static_cast<std::uint32_t>(at - out.members.begin()));
    if (at == out.members.end()) {
      out.members.push_back(group);
    }
  }
  return out;
}

/// What the instructions of one step have in common. Written before the first is submitted.
template <optim::update_rule Rule>
struct step_values {
  std::vector<typename Rule::step_type> groups{};  ///< by position in `executor::groups_`
  float loss_scale = 0;
  std::uint64_t step = 0;  ///< attempted steps before this one

  static step_values of(std::size_t groups) {
    return {.groups = std::vector<typename Rule::step_type>(groups)};
  }
};

/// What an update multiplies gradients by, and whether it is left out: the scalars cell.
struct update_scalars {
  float scale = 1;
  std::uint32_t skip = 0;
};
static_assert(sizeof(update_scalars) <= schedule::scalars_bytes);

}  // namespace protrain::inline v0::runtime::detail
