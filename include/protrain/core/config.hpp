// SPDX-License-Identifier: Apache-2.0
#pragma once
// The library's few macros, the contract check, and the version namespace.
// Nothing here changes layout or overloads: every translation unit may use other flags.

#include <type_traits>

#define PROTRAIN_VERSION_MAJOR 0
#define PROTRAIN_VERSION_MINOR 1
#define PROTRAIN_VERSION_PATCH 0

#if defined(__CUDACC__)
#define PROTRAIN_HD __host__ __device__
#else
#define PROTRAIN_HD
#endif

namespace protrain::inline v0 {
namespace core {}
/// The names of `core` are the vocabulary of every other folder and of user code.
using namespace core;
}  // namespace protrain::inline v0

namespace protrain::inline v0::core {

/// What a contract violation says to the handler; the strings are literals.
struct violation {
  char const* condition;
  char const* message;
  char const* file;
  int line;
};

using violation_handler = void (*)(violation const&);

/// Installs `handler` (null restores the default, which prints and aborts) and returns the old
/// one. A handler may throw; if it returns, the program aborts.
violation_handler set_violation_handler(violation_handler handler) noexcept;

namespace detail {
[[noreturn]] void fail(violation const& what);
}  // namespace detail

}  // namespace protrain::inline v0::core

/// Caller's bug: always on. Constant evaluation stops here, the host calls the handler and aborts,
/// a device traps.
#if defined(__CUDA_ARCH__)
#define PROTRAIN_EXPECT(condition, message) \
  do {                                      \
    if (!(condition)) {                     \
      __trap();                             \
    }                                       \
  } while (false)
#else
#define PROTRAIN_EXPECT(condition, message)                                      \
  do {                                                                           \
    if (!(condition)) {                                                          \
      ::protrain::core::detail::fail({#condition, message, __FILE__, __LINE__}); \
    }                                                                            \
  } while (false)
#endif

#include "protrain/core/detail/contract.hpp"  // IWYU pragma: export
