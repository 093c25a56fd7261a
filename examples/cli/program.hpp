// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a program of the examples ends: what was wrong as one line, and the exit code that says whose
// fault it is.

#include "examples/cli/flags.hpp"
#include "protrain/io/input_error.hpp"

#include <cstdio>
#include <exception>
#include <new>

namespace cli {

/// What `run(count, words)` answers; 1 after bad usage or input, 3 after a failure while running.
template <class Run>
int run_program(char const* name, Run const& run, int count, char** words) {
  try {
    return run(count, words);
  } catch (usage_error const& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  } catch (protrain::io::input_error const& e) {
    std::fprintf(stderr, "%s: %s\n", name, e.what());
    return 1;
  } catch (std::bad_alloc const&) {
    std::fprintf(stderr, "%s: failed: the system has no more memory\n", name);
    return 3;
  } catch (std::exception const& e) {
    std::fprintf(stderr, "%s: failed: %s\n", name, e.what());
    return 3;
  }
}

}  // namespace cli
