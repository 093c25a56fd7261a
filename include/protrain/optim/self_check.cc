// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/optim/accumulate.hpp>
#include <protrain/optim/adamw.hpp>
#include <protrain/optim/arithmetic.hpp>
#include <protrain/optim/detail/adamw_avx2.hpp>
#include <protrain/optim/detail/adamw_avx512.hpp>
#include <protrain/optim/detail/adamw_step.hpp>
#include <protrain/optim/exact_sum.hpp>
#include <protrain/optim/master.hpp>
#include <protrain/optim/norm.hpp>
#include <protrain/optim/scale.hpp>
#include <protrain/optim/sgd.hpp>
#include <protrain/optim/update.hpp>
#include <protrain/optim/update_rule.hpp>
#include <protrain/optim/vectors.hpp>
#include <protrain/optim/accumulate.hpp>
#include <protrain/optim/adamw.hpp>
#include <protrain/optim/arithmetic.hpp>
#include <protrain/optim/detail/adamw_avx2.hpp>
#include <protrain/optim/detail/adamw_avx512.hpp>
#include <protrain/optim/detail/adamw_step.hpp>
#include <protrain/optim/exact_sum.hpp>
#include <protrain/optim/master.hpp>
#include <protrain/optim/norm.hpp>
#include <protrain/optim/scale.hpp>
#include <protrain/optim/sgd.hpp>
#include <protrain/optim/update.hpp>
#include <protrain/optim/update_rule.hpp>
#include <protrain/optim/vectors.hpp>
