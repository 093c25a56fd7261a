// SPDX-License-Identifier: Apache-2.0
// A hand-written trainer before and after it adopts the library: few lines change, no bit does, and
// it needs less memory.

#include "protrain/io/file.hpp"
#include "test/unit/examples/command.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace adopt_test {

using protrain_test::command;

namespace {

std::vector<std::string> lines_of(std::string const& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = std::min(text.find('\n', at), text.size());
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

std::vector<std::string> run(char const* program) {
  command c(program, {});
  c.wait();
  INFO(c.err);
  REQUIRE(c.code == 0);
  return lines_of(c.out);
}

unsigned long bytes_in(std::string const& line) {
  REQUIRE(line.starts_with("memory "));
  return std::stoul(line.substr(7));
}

}  // namespace

TEST_CASE("the same losses, to the bit, in less than a third of the memory") {
  auto before = run("examples/adopt/before");
  auto after = run("examples/adopt/after");
  REQUIRE(before.size() == 11);
  REQUIRE(after.size() == 11);
  unsigned long const kept = bytes_in(before.back());
  unsigned long const planned = bytes_in(after.back());
  CHECK(planned <= 1536UL * 1024);
  CHECK(3 * planned < kept);
  before.pop_back();
  after.pop_back();
  CHECK(before == after);
  CHECK(before.front() != before.back());
}

TEST_CASE("fewer than 80 lines change") {
  command c("/usr/bin/diff", {"examples/adopt/before.cpp", "examples/adopt/after.cpp"});
  c.wait();
  REQUIRE(c.code == 1);
  auto const changed = std::ranges::count_if(lines_of(c.out), [](std::string const& line) {
    return line.starts_with("<") || line.starts_with(">");
  });
  CHECK(changed < 80);
  CHECK(changed > 0);
}

TEST_CASE("the trainer before knows nothing of the library") {
  CHECK(protrain::io::read_file("examples/adopt/before.cpp").find("protrain") == std::string::npos);
}

}  // namespace adopt_test
