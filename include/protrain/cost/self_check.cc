// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/cost/assigned.hpp>
#include <protrain/cost/benefit.hpp>
#include <protrain/cost/detail/placed_chunks.hpp>
#include <protrain/cost/detail/placed_spans.hpp>
#include <protrain/cost/lower_bound.hpp>
#include <protrain/cost/make_placed.hpp>
#include <protrain/cost/paper_inputs.hpp>
#include <protrain/cost/paper_job.hpp>
#include <protrain/cost/paper_memory.hpp>
#include <protrain/cost/paper_plan.hpp>
#include <protrain/cost/paper_time.hpp>
#include <protrain/cost/placed.hpp>
#include <protrain/cost/rates.hpp>
#include <protrain/cost/step.hpp>
#include <protrain/cost/assigned.hpp>
#include <protrain/cost/benefit.hpp>
#include <protrain/cost/detail/placed_chunks.hpp>
#include <protrain/cost/detail/placed_spans.hpp>
#include <protrain/cost/lower_bound.hpp>
#include <protrain/cost/make_placed.hpp>
#include <protrain/cost/paper_inputs.hpp>
#include <protrain/cost/paper_job.hpp>
#include <protrain/cost/paper_memory.hpp>
#include <protrain/cost/paper_plan.hpp>
#include <protrain/cost/paper_time.hpp>
#include <protrain/cost/placed.hpp>
#include <protrain/cost/rates.hpp>
#include <protrain/cost/step.hpp>
