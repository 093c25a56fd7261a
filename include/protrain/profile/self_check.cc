// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/profile/agree.hpp>
#include <protrain/profile/detail/lanes.hpp>
#include <protrain/profile/detail/lone_run.hpp>
#include <protrain/profile/detail/pass_times.hpp>
#include <protrain/profile/detail/probe_work.hpp>
#include <protrain/profile/detail/prober.hpp>
#include <protrain/profile/detail/sample_data.hpp>
#include <protrain/profile/detail/work.hpp>
#include <protrain/profile/dry_run.hpp>
#include <protrain/profile/error.hpp>
#include <protrain/profile/hooks.hpp>
#include <protrain/profile/measure.hpp>
#include <protrain/profile/probe.hpp>
#include <protrain/profile/agree.hpp>
#include <protrain/profile/detail/lanes.hpp>
#include <protrain/profile/detail/lone_run.hpp>
#include <protrain/profile/detail/pass_times.hpp>
#include <protrain/profile/detail/probe_work.hpp>
#include <protrain/profile/detail/prober.hpp>
#include <protrain/profile/detail/sample_data.hpp>
#include <protrain/profile/detail/work.hpp>
#include <protrain/profile/dry_run.hpp>
#include <protrain/profile/error.hpp>
#include <protrain/profile/hooks.hpp>
#include <protrain/profile/measure.hpp>
#include <protrain/profile/probe.hpp>
