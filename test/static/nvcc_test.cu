// SPDX-License-Identifier: Apache-2.0
// nvcc evaluates constants with a front end of its own: the same assertions hold there.

#include "test/static/plan/closed_form_test.cpp"
#include "test/static/plan/constant_evaluation_test.cpp"
#include "test/static/planning_test.cpp"
