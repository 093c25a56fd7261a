// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/model/adapters.hpp>
#include <protrain/model/config.hpp>
#include <protrain/model/decoder.hpp>
#include <protrain/model/gpt2.hpp>
#include <protrain/model/job.hpp>
#include <protrain/model/llama.hpp>
#include <protrain/model/operations.hpp>
#include <protrain/model/parameter.hpp>
#include <protrain/model/adapters.hpp>
#include <protrain/model/config.hpp>
#include <protrain/model/decoder.hpp>
#include <protrain/model/gpt2.hpp>
#include <protrain/model/job.hpp>
#include <protrain/model/llama.hpp>
#include <protrain/model/operations.hpp>
#include <protrain/model/parameter.hpp>
