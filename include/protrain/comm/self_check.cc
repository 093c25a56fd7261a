// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/comm/communicator.hpp>
#include <protrain/comm/error.hpp>
#include <protrain/comm/fold.hpp>
#include <protrain/comm/self.hpp>
#include <protrain/comm/threads.hpp>
#include <protrain/comm/communicator.hpp>
#include <protrain/comm/error.hpp>
#include <protrain/comm/fold.hpp>
#include <protrain/comm/self.hpp>
#include <protrain/comm/threads.hpp>
