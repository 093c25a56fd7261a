// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/core/arithmetic.hpp>
#include <protrain/core/bfloat16.hpp>
#include <protrain/core/canary.hpp>
#include <protrain/core/config.hpp>
#include <protrain/core/customization.hpp>
#include <protrain/core/detail/contract.hpp>
#include <protrain/core/dtype.hpp>
#include <protrain/core/float16.hpp>
#include <protrain/core/float_environment.hpp>
#include <protrain/core/ids.hpp>
#include <protrain/core/math.hpp>
#include <protrain/core/philox.hpp>
#include <protrain/core/queue.hpp>
#include <protrain/core/result.hpp>
#include <protrain/core/strict_math.hpp>
#include <protrain/core/text.hpp>
#include <protrain/core/units.hpp>
#include <protrain/core/arithmetic.hpp>
#include <protrain/core/bfloat16.hpp>
#include <protrain/core/canary.hpp>
#include <protrain/core/config.hpp>
#include <protrain/core/customization.hpp>
#include <protrain/core/detail/contract.hpp>
#include <protrain/core/dtype.hpp>
#include <protrain/core/float16.hpp>
#include <protrain/core/float_environment.hpp>
#include <protrain/core/ids.hpp>
#include <protrain/core/math.hpp>
#include <protrain/core/philox.hpp>
#include <protrain/core/queue.hpp>
#include <protrain/core/result.hpp>
#include <protrain/core/strict_math.hpp>
#include <protrain/core/text.hpp>
#include <protrain/core/units.hpp>
