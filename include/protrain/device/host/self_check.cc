// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/device/host/detail/task_ring.hpp>
#include <protrain/device/host/host_device.hpp>
#include <protrain/device/host/detail/task_ring.hpp>
#include <protrain/device/host/host_device.hpp>
