// SPDX-License-Identifier: Apache-2.0
#pragma once
// Refuses compiler modes in which the same source gives other bits.
// Included by every header whose arithmetic has promised bits.

#include <cfloat>

#if defined(__FAST_MATH__) || defined(__ASSOCIATIVE_MATH__) || defined(__RECIPROCAL_MATH__)
#error "protrain promises equal bits everywhere: compile this file without -ffast-math (-Ofast)"
#endif

#if defined(FLT_EVAL_METHOD) && FLT_EVAL_METHOD != 0
#error "protrain needs fp32 operations that round to fp32: compile with -mfpmath=sse"
#endif
