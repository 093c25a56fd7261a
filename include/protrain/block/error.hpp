// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a block did wrong: a description that doesn't fit, or memory beyond the plan.
// The message is one line that names the block and the tensor or operator.

#include "protrain/core/config.hpp"

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::block {

/// Thrown by `stack::entries` and by a block's use of its `scope`.
class block_error : public std::runtime_error {
 public:
  /// `subject` is the tensor or operator; the byte counts are 0 where memory is not the matter.
  block_error(std::string const& block,
              std::string subject,
              std::string const& what,
              std::uint64_t asked = 0,
              std::uint64_t planned = 0)
      : std::runtime_error("block " + block + ": " + what),
        block_(block),
        subject_(std::move(subject)),
        asked_(asked),
        planned_(planned) {}

  std::string const& block() const noexcept { return block_; }
  std::string const& subject() const noexcept { return subject_; }
  std::uint64_t asked() const noexcept { return asked_; }
  std::uint64_t planned() const noexcept { return planned_; }

 private:
  std::string block_;
  std::string subject_;
  std::uint64_t asked_;
  std::uint64_t planned_;
};

namespace detail {

inline std::string in_quotes(std::string_view name) { return "'" + std::string(name) + "'"; }

}  // namespace detail
}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::block_error;
}  // namespace protrain::inline v0
