// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/trace/analytic.hpp>
#include <protrain/trace/trace.hpp>
#include <protrain/trace/analytic.hpp>
#include <protrain/trace/trace.hpp>
