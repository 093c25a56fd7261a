// SPDX-License-Identifier: Apache-2.0
#pragma once
// What an optimizer is to the library: hyper-parameters, a few fp32 state tensors per parameter,
// and one element-wise step.

#include "protrain/core/config.hpp"
#include "protrain/core/strict_math.hpp"

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace protrain::inline v0::optim {

/// Consent to be an update rule: carrying the right member names by accident is not enough.
struct update_rule_tag {};

/// State of one element, one value per state tensor.
template <class R>
using element_state = std::array<float, R::state_tensors>;

/// The state tensors of a range of elements, each with its own base.
template <class R>
using state_arrays = std::array<float*, R::state_tensors>;

/// An optimizer. Laws (test/law/update_rule.hpp):
/// - `prepare` runs on the host once per step and parameter group; `t` counts applied updates from
///   1; what it returns is passed by value to host loops and kernels alike.
/// - `element` is a function of its arguments' bits; with s = 1 and a zero gradient forever, state
///   reaches no denormal and stays finite; state and parameter never hold another NaN than
///   0x7FC00000.
/// - State starts as +0 everywhere.
/// - Every operation is one of arithmetic.hpp's, so no compiler setting changes a bit.
template <class R>
concept update_rule =
    std::regular<R> && std::same_as<typename R::policy_tag, update_rule_tag> &&
    std::regular<typename R::step_type> && std::is_trivially_copyable_v<typename R::step_type> &&
    requires(R const& rule,
             typename R::step_type const& step,
             float value,
             float& parameter,
             element_state<R>& state) {
      { std::bool_constant<(R::state_tensors >= 0)>{} } -> std::same_as<std::true_type>;
      { rule.prepare(double{}, std::int64_t{1}, bool{}) } -> std::same_as<typename R::step_type>;
      { R::element(step, value, value, parameter, state) } noexcept -> std::same_as<void>;
    };

}  // namespace protrain::inline v0::optim
