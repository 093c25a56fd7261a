// SPDX-License-Identifier: Apache-2.0
#pragma once
// Any model that has a configuration here, and the questions that every trainer asks of one.

#include "protrain/model/gpt2.hpp"
#include "protrain/model/llama.hpp"

#include <cstdint>
#include <string_view>
#include <variant>

namespace protrain::inline v0::model {

using config = std::variant<gpt2_config, llama_config>;

/// As `model_type` of a configuration file says it.
constexpr std::string_view type_name(gpt2_config const&) noexcept { return "gpt2"; }
constexpr std::string_view type_name(llama_config const&) noexcept { return "llama"; }
constexpr std::string_view type_name(config const& c) {
  return std::visit([](auto const& each) { return type_name(each); }, c);
}

constexpr std::uint64_t vocabulary_of(config const& c) {
  return std::visit([](auto const& each) { return each.vocabulary; }, c);
}

/// Tokens of the longest sequence.
constexpr std::uint64_t positions_of(config const& c) {
  return std::visit([](auto const& each) { return each.positions; }, c);
}

/// The probability wherever the model has dropout.
constexpr double dropout_of(config const& c) {
  return std::visit([](auto const& each) { return each.dropout; }, c);
}

}  // namespace protrain::inline v0::model
