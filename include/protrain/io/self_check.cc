// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/io/config.hpp>
#include <protrain/io/decoder.hpp>
#include <protrain/io/file.hpp>
#include <protrain/io/input_error.hpp>
#include <protrain/io/job.hpp>
#include <protrain/io/json.hpp>
#include <protrain/io/log.hpp>
#include <protrain/io/machine.hpp>
#include <protrain/io/plan.hpp>
#include <protrain/io/run_facts.hpp>
#include <protrain/io/text_data.hpp>
#include <protrain/io/trace.hpp>
#include <protrain/io/config.hpp>
#include <protrain/io/decoder.hpp>
#include <protrain/io/file.hpp>
#include <protrain/io/input_error.hpp>
#include <protrain/io/job.hpp>
#include <protrain/io/json.hpp>
#include <protrain/io/log.hpp>
#include <protrain/io/machine.hpp>
#include <protrain/io/plan.hpp>
#include <protrain/io/run_facts.hpp>
#include <protrain/io/text_data.hpp>
#include <protrain/io/trace.hpp>
