// SPDX-License-Identifier: Apache-2.0
// The main function of every test binary; test files only hold test cases.
// Compiled once, so that a test file costs no more than its own cases.

#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>
