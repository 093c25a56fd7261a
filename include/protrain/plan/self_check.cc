// SPDX-License-Identifier: Apache-2.0
// Written by tools/self_checks: every header of this folder, twice.
// clang-format off
#include <protrain/plan/budget.hpp>
#include <protrain/plan/closed_form.hpp>
#include <protrain/plan/detail/axes.hpp>
#include <protrain/plan/detail/closed_form_search.hpp>
#include <protrain/plan/detail/closed_form_tables.hpp>
#include <protrain/plan/detail/evaluator.hpp>
#include <protrain/plan/detail/refusal.hpp>
#include <protrain/plan/detail/searcher.hpp>
#include <protrain/plan/explain.hpp>
#include <protrain/plan/infeasible.hpp>
#include <protrain/plan/limits.hpp>
#include <protrain/plan/parse.hpp>
#include <protrain/plan/plan.hpp>
#include <protrain/plan/policies.hpp>
#include <protrain/plan/search.hpp>
#include <protrain/plan/size.hpp>
#include <protrain/plan/space.hpp>
#include <protrain/plan/budget.hpp>
#include <protrain/plan/closed_form.hpp>
#include <protrain/plan/detail/axes.hpp>
#include <protrain/plan/detail/closed_form_search.hpp>
#include <protrain/plan/detail/closed_form_tables.hpp>
#include <protrain/plan/detail/evaluator.hpp>
#include <protrain/plan/detail/refusal.hpp>
#include <protrain/plan/detail/searcher.hpp>
#include <protrain/plan/explain.hpp>
#include <protrain/plan/infeasible.hpp>
#include <protrain/plan/limits.hpp>
#include <protrain/plan/parse.hpp>
#include <protrain/plan/plan.hpp>
#include <protrain/plan/policies.hpp>
#include <protrain/plan/search.hpp>
#include <protrain/plan/size.hpp>
#include <protrain/plan/space.hpp>
