// SPDX-License-Identifier: Apache-2.0
#pragma once
// Ctrl-C asks for a clean stop; a second one stops at once.

#include <csignal>

namespace cli {

namespace detail {
inline std::sig_atomic_t volatile interrupted = 0;
}  // namespace detail

/// From now on SIGINT only sets a flag, once.
inline void watch_interrupt() {
  struct sigaction act{};
  act.sa_handler = [](int) { detail::interrupted = 1; };
  act.sa_flags = static_cast<int>(SA_RESTART | SA_RESETHAND);
  ::sigaction(SIGINT, &act, nullptr);
}

inline bool interrupted() { return detail::interrupted != 0; }

}  // namespace cli
