// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/chunk/eviction.hpp>
#include <protrain/chunk/layout.hpp>
#include <protrain/chunk/placement.hpp>
#include <protrain/chunk/sizing.hpp>
#include <protrain/chunk/eviction.hpp>
#include <protrain/chunk/layout.hpp>
#include <protrain/chunk/placement.hpp>
#include <protrain/chunk/sizing.hpp>
