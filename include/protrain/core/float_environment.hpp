// SPDX-License-Identifier: Apache-2.0
#pragma once
// The floating-point environment of the arithmetic contract, for as long as an object lives.
// A shared object built with -ffast-math may have changed it for the whole process.

#include "protrain/core/config.hpp"
#include "protrain/core/strict_math.hpp"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace protrain::inline v0::core {

/// Round to nearest, denormals kept (neither flushed nor read as zero), traps masked, on the
/// calling thread; the destructor restores what was, flags included. Costs a few nanoseconds, so
/// every function of the library that loops over elements makes its own. x86 only: elsewhere the
/// platform's default is the contract's environment already.
class float_environment {
 public:
  float_environment() noexcept {
#if defined(__SSE__)
    _mm_setcsr(0x1F80U);  // the reset value of MXCSR
    fence();
#endif
  }

  ~float_environment() {
#if defined(__SSE__)
    fence();
    _mm_setcsr(saved_);
#endif
  }

  float_environment(float_environment const&) = delete;
  float_environment(float_environment&&) = delete;
  float_environment& operator=(float_environment const&) = delete;
  float_environment& operator=(float_environment&&) = delete;

 private:
#if defined(__SSE__)
  // Compilers don't know that arithmetic reads MXCSR; loads and stores stay on their side of this.
  static void fence() noexcept { asm volatile("" ::: "memory"); }

  unsigned saved_ = _mm_getcsr();
#endif
};

}  // namespace protrain::inline v0::core
