// SPDX-License-Identifier: Apache-2.0
#pragma once
// What stops a measurement. The message is one line that names the block and, if it was inside one,
// the operator; the exception behind it is nested (std::rethrow_if_nested).

#include "protrain/core/config.hpp"

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::profile {

class profile_error : public std::runtime_error {
 public:
  explicit profile_error(std::string const& what) : std::runtime_error(what) {}
  profile_error(std::string block, std::string op, std::string_view pass, std::string_view what)
      : std::runtime_error(message(block, op, pass, what)),
        block_(std::move(block)),
        operator_(std::move(op)) {}

  /// Empty where no block is to blame.
  std::string const& block() const noexcept { return block_; }
  /// Empty outside any.
  std::string const& operator_name() const noexcept { return operator_; }

 private:
  static std::string message(std::string_view block,
                             std::string_view op,
                             std::string_view pass,
                             std::string_view what) {
    std::string out = "block " + std::string(block) + ": ";
    if (!op.empty()) {
      out += "operator '" + std::string(op) + "' in ";
    }
    return out.append(pass).append(": ").append(what);
  }

  std::string block_{};
  std::string operator_{};
};

}  // namespace protrain::inline v0::profile
