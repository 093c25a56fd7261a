// SPDX-License-Identifier: Apache-2.0
#pragma once
// Definitions behind PROTRAIN_EXPECT: the handler is the library's only mutable global.
// Included by core/config.hpp alone.

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace protrain::inline v0::core {
namespace detail {

inline std::atomic<violation_handler>& handler_slot() noexcept {
  static std::atomic<violation_handler> slot{nullptr};
  return slot;
}

[[noreturn]] inline void fail(violation const& what) {
  if (violation_handler const handler = handler_slot().load(); handler != nullptr) {
    handler(what);
  }
  std::fprintf(
      stderr, "protrain: %s (%s) at %s:%d\n", what.message, what.condition, what.file, what.line);
  std::abort();
}

}  // namespace detail

inline violation_handler set_violation_handler(violation_handler handler) noexcept {
  return detail::handler_slot().exchange(handler);
}

}  // namespace protrain::inline v0::core
