// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/hw/machine.hpp>
#include <protrain/hw/presets.hpp>
#include <protrain/hw/machine.hpp>
#include <protrain/hw/presets.hpp>
