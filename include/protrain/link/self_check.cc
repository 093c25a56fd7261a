// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/link/bandwidth.hpp>
#include <protrain/link/derated.hpp>
#include <protrain/link/shared.hpp>
#include <protrain/link/bandwidth.hpp>
#include <protrain/link/derated.hpp>
#include <protrain/link/shared.hpp>
