// SPDX-License-Identifier: Apache-2.0
#pragma once
// Everything but files, reports and CUDA: planning (planning.hpp alone needs neither threads nor
// exceptions), devices of the host, blocks, the engine.
// No JSON, no iostream, no regex.

#include "protrain/block/pointers.hpp"
#include "protrain/block/scope.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/block/standalone.hpp"
#include "protrain/comm/self.hpp"
#include "protrain/comm/threads.hpp"
#include "protrain/device/host/host_device.hpp"
#include "protrain/device/serial/serial_device.hpp"
#include "protrain/optim/adamw.hpp"
#include "protrain/planning.hpp"
#include "protrain/profile/agree.hpp"
#include "protrain/profile/dry_run.hpp"
#include "protrain/profile/measure.hpp"
#include "protrain/profile/probe.hpp"
#include "protrain/runtime/engine.hpp"
#include "protrain/runtime/memory_manager.hpp"
