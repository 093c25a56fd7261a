// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/runtime/batch.hpp>
#include <protrain/runtime/detail/bindings.hpp>
#include <protrain/runtime/detail/executor.hpp>
#include <protrain/runtime/detail/image.hpp>
#include <protrain/runtime/detail/leases.hpp>
#include <protrain/runtime/detail/segments.hpp>
#include <protrain/runtime/detail/setup.hpp>
#include <protrain/runtime/detail/shards.hpp>
#include <protrain/runtime/detail/step_values.hpp>
#include <protrain/runtime/detail/storage.hpp>
#include <protrain/runtime/engine.hpp>
#include <protrain/runtime/error.hpp>
#include <protrain/runtime/kernels.hpp>
#include <protrain/runtime/loss.hpp>
#include <protrain/runtime/memory_manager.hpp>
#include <protrain/runtime/pending.hpp>
#include <protrain/runtime/batch.hpp>
#include <protrain/runtime/detail/bindings.hpp>
#include <protrain/runtime/detail/executor.hpp>
#include <protrain/runtime/detail/image.hpp>
#include <protrain/runtime/detail/leases.hpp>
#include <protrain/runtime/detail/segments.hpp>
#include <protrain/runtime/detail/setup.hpp>
#include <protrain/runtime/detail/shards.hpp>
#include <protrain/runtime/detail/step_values.hpp>
#include <protrain/runtime/detail/storage.hpp>
#include <protrain/runtime/engine.hpp>
#include <protrain/runtime/error.hpp>
#include <protrain/runtime/kernels.hpp>
#include <protrain/runtime/loss.hpp>
#include <protrain/runtime/memory_manager.hpp>
#include <protrain/runtime/pending.hpp>
