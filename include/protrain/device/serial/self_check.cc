// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/device/serial/detail/access_map.hpp>
#include <protrain/device/serial/detail/checker.hpp>
#include <protrain/device/serial/detail/clock.hpp>
#include <protrain/device/serial/detail/guard.hpp>
#include <protrain/device/serial/detail/order.hpp>
#include <protrain/device/serial/detail/serial_class.hpp>
#include <protrain/device/serial/detail/serial_run.hpp>
#include <protrain/device/serial/hazard.hpp>
#include <protrain/device/serial/options.hpp>
#include <protrain/device/serial/serial_device.hpp>
#include <protrain/device/serial/detail/access_map.hpp>
#include <protrain/device/serial/detail/checker.hpp>
#include <protrain/device/serial/detail/clock.hpp>
#include <protrain/device/serial/detail/guard.hpp>
#include <protrain/device/serial/detail/order.hpp>
#include <protrain/device/serial/detail/serial_class.hpp>
#include <protrain/device/serial/detail/serial_run.hpp>
#include <protrain/device/serial/hazard.hpp>
#include <protrain/device/serial/options.hpp>
#include <protrain/device/serial/serial_device.hpp>
