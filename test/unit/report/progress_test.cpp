// SPDX-License-Identifier: Apache-2.0
// The progress line: rewritten on a terminal, silent elsewhere.

#include "protrain/report/progress.hpp"

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace progress_test {

namespace {

std::string written(std::FILE* file) {
  std::string out(1000, '\0');
  std::rewind(file);
  out.resize(std::fread(out.data(), 1, out.size(), file));
  return out;
}

}  // namespace

TEST_CASE("into a file nothing is written") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    protrain::report::progress p(file);
    CHECK_FALSE(p.terminal());
    p.show("step 1");
    p.clear();
  }
  CHECK(written(file).empty());
  std::fclose(file);
}

TEST_CASE("on a terminal each line replaces the last, and the end leaves none") {
  std::FILE* const file = std::tmpfile();
  REQUIRE(file != nullptr);
  {
    protrain::report::progress p(file, true);
    p.show("step 1");
    p.show("step 2");
  }
  CHECK(written(file) == "\rstep 1\x1b[K\rstep 2\x1b[K\r\x1b[K");
  std::fclose(file);
}

}  // namespace progress_test
