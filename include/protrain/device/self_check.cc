// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/device/device.hpp>
#include <protrain/device/error.hpp>
#include <protrain/device/ledger.hpp>
#include <protrain/device/pages.hpp>
#include <protrain/device/processors.hpp>
#include <protrain/device/timed.hpp>
#include <protrain/device/workers.hpp>
#include <protrain/device/device.hpp>
#include <protrain/device/error.hpp>
#include <protrain/device/ledger.hpp>
#include <protrain/device/pages.hpp>
#include <protrain/device/processors.hpp>
#include <protrain/device/timed.hpp>
#include <protrain/device/workers.hpp>
