// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/report/answers.hpp>
#include <protrain/report/comparison_table.hpp>
#include <protrain/report/format.hpp>
#include <protrain/report/knob_table.hpp>
#include <protrain/report/memory_dump.hpp>
#include <protrain/report/memory_table.hpp>
#include <protrain/report/micro_batch_table.hpp>
#include <protrain/report/perfetto.hpp>
#include <protrain/report/plan_summary.hpp>
#include <protrain/report/progress.hpp>
#include <protrain/report/shortage_dump.hpp>
#include <protrain/report/stall_dump.hpp>
#include <protrain/report/answers.hpp>
#include <protrain/report/comparison_table.hpp>
#include <protrain/report/format.hpp>
#include <protrain/report/knob_table.hpp>
#include <protrain/report/memory_dump.hpp>
#include <protrain/report/memory_table.hpp>
#include <protrain/report/micro_batch_table.hpp>
#include <protrain/report/perfetto.hpp>
#include <protrain/report/plan_summary.hpp>
#include <protrain/report/progress.hpp>
#include <protrain/report/shortage_dump.hpp>
#include <protrain/report/stall_dump.hpp>
