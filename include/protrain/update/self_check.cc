// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/update/site.hpp>
#include <protrain/update/state_format.hpp>
#include <protrain/update/timing.hpp>
#include <protrain/update/site.hpp>
#include <protrain/update/state_format.hpp>
#include <protrain/update/timing.hpp>
