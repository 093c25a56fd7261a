// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/sim/detail/contended.hpp>
#include <protrain/sim/durations.hpp>
#include <protrain/sim/pace.hpp>
#include <protrain/sim/simulate.hpp>
#include <protrain/sim/timeline.hpp>
#include <protrain/sim/whole_step.hpp>
#include <protrain/sim/detail/contended.hpp>
#include <protrain/sim/durations.hpp>
#include <protrain/sim/pace.hpp>
#include <protrain/sim/simulate.hpp>
#include <protrain/sim/timeline.hpp>
#include <protrain/sim/whole_step.hpp>
