// SPDX-License-Identifier: Apache-2.0
// The programs of the documents. Usage: examples NAME

#include "test/docs/debugging_example.hpp"
#include "test/docs/policies_example.hpp"
#include "test/docs/profiling_example.hpp"
#include "test/docs/readme_example.hpp"

#include <cstdio>
#include <map>
#include <string>

int main(int count, char** arguments) {
  std::map<std::string, int (*)()> const programs = {{"debugging", &debugging_example::main},
                                                     {"policies", &policies_example::main},
                                                     {"profiling", &profiling_example::main},
                                                     {"readme", &readme_example::main}};
  auto const found = programs.find(count == 2 ? arguments[1] : "");
  if (found == programs.end()) {
    std::fputs("usage: examples debugging|policies|profiling|readme\n", stderr);
    return 2;
  }
  return found->second();
}
