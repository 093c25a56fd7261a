// SPDX-License-Identifier: Apache-2.0
// -ffast-math is refused with the cure. -Ofast and -ffast-math define the macro; the test does the
// same, because its flags are the same with and without the fault.

// expect: compile this file without -ffast-math
#if FAULT_ON
#define __FAST_MATH__ 1
#endif

#include "protrain/optim/adamw.hpp"

float move(float p) {
  float m = 0;
  float v = 0;
  protrain::optim::adamw_element({}, 1.0F, 1.0F, p, m, v);
  return p;
}
