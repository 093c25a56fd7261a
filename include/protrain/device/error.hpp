// SPDX-License-Identifier: Apache-2.0
#pragma once
// What a device throws: the call that failed, why, and where it was made.

#include "protrain/core/config.hpp"

#include <source_location>
#include <stdexcept>
#include <string>
#include <string_view>

namespace protrain::inline v0::device {

/// `what()` reads "call: reason (file:line)".
class device_error : public std::runtime_error {
 public:
  device_error(std::string_view call,
               std::string_view reason,
               std::source_location where = std::source_location::current())
      : std::runtime_error(message(call, reason, where)),
        call_(call),
        reason_(reason),
        where_(where) {}

  /// The operation that failed: a member of the device, or a function of the driver.
  std::string const& call() const noexcept { return call_; }
  std::string const& reason() const noexcept { return reason_; }
  std::source_location const& where() const noexcept { return where_; }

 private:
  static std::string message(std::string_view call,
                             std::string_view reason,
                             std::source_location const& where) {
    std::string text(call);
    text += ": ";
    text += reason;
    text += " (";
    text += where.file_name();
    text += ':';
    text += std::to_string(where.line());
    text += ')';
    return text;
  }

  std::string call_;
  std::string reason_;
  std::source_location where_;
};

}  // namespace protrain::inline v0::device
