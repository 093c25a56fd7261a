// SPDX-License-Identifier: Apache-2.0
// Command lines: what is understood, and that everything else is refused by name.

#include "examples/cli/flags.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace flags_test {

namespace {

cli::flags parsed(std::vector<char const*> words) {
  words.insert(words.begin(), "program");
  cli::flags f("Usage: program");
  f.add("steps", "N", "20", "how many")
      .add("lr", "X", "1e-3", "rate")
      .add("memory", "SIZE", "all", "budget")
      .add("mode", "a|b", "a", "which")
      .add_switch("plain", "simple")
      .add_switch("help", "this");
  f.parse(static_cast<int>(words.size()), words.data());
  return f;
}

std::string refused(std::vector<char const*> const& words) {
  try {
    cli::flags const f = parsed(words);
    (void)f.integer("steps", 20, 1, 1000);
    (void)f.number("lr", 1e-3, 0, 1, "from 0 to 1");
    (void)f.size("memory", 7);
    (void)f.choice("mode", "a", {"a", "b"});
  } catch (cli::usage_error const& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("values by either spelling, defaults otherwise") {
  cli::flags const f = parsed({"--steps", "5", "--lr=0.5", "--memory", "1.5KiB", "--plain"});
  CHECK(f.integer("steps", 20, 1, 1000) == 5);
  CHECK(f.number("lr", 1e-3, 0, 1, "") == 0.5);
  CHECK(f.size("memory", 7) == 1536);
  CHECK(f.choice("mode", "a", {"a", "b"}) == "a");
  CHECK(f.given("plain"));
  CHECK_FALSE(f.given("help"));
  cli::flags const none = parsed({});
  CHECK(none.integer("steps", 20, 1, 1000) == 20);
  CHECK(none.size("memory", 7) == 7);
  CHECK_FALSE(none.text("mode"));
}

TEST_CASE("values may be empty, hold '=' or start with '-'") {
  CHECK(*parsed({"--mode=x=y"}).text("mode") == "x=y");
  CHECK(parsed({"--mode="}).text("mode")->empty());
  CHECK(*parsed({"--mode", "-1"}).text("mode") == "-1");
}

TEST_CASE("what is refused, in words that name flag and value") {
  CHECK(refused({"--step", "5"}) ==
        "--step: is unknown; known are --steps, --lr, --memory, --mode, --plain, --help");
  CHECK(refused({"5"}) == "'5': is no flag; flags are --name value, see --help");
  CHECK(refused({"-s", "5"}) == "'-s': is no flag; flags are --name value, see --help");
  CHECK(refused({"--steps"}) == "--steps: the value is missing; write --steps N");
  CHECK(refused({"--steps", "--plain"}) == "--steps: the value is missing; write --steps N");
  CHECK(refused({"--steps", "5", "--steps=5"}) == "--steps: is given twice; keep one");
  CHECK(refused({"--plain=1"}) == "--plain: takes no value; write --plain");
  CHECK(refused({"--plain", "--plain"}) == "--plain: is given twice; keep one");
  for (char const* const bad : {"",
                                "x",
                                "5x",
                                "5.0",
                                "-1",
                                "0",
                                "1001",
                                "1e2",
                                "99999999999999999999",
                                " 5",
                                "+5",
                                "0x5"}) {
    CAPTURE(bad);
    CHECK(refused({"--steps", bad}) ==
          "--steps '" + std::string(bad) + "': must be an integer from 1 to 1000");
  }
  for (char const* const bad : {"", "x", "1e-3x", "-0.1", "1.1", "nan", "inf", "1e999"}) {
    CAPTURE(bad);
    CHECK(refused({"--lr", bad}) ==
          "--lr '" + std::string(bad) + "': must be a number from 0 to 1");
  }
  CHECK(refused({"--memory", "12 quarts"}).find("--memory '12 quarts': not a size") == 0);
  CHECK(refused({"--mode", "c"}) == "--mode 'c': must be one of a, b");
  CHECK(refused({"--mode", "a\nb"}) == "--mode 'a?b': must be one of a, b");
}

TEST_CASE("help wins, and lists every flag with its default") {
  cli::flags const f = parsed({"--nonsense", "--help"});
  CHECK(f.given("help"));
  for (char const* const part : {"--steps N", "[20]", "--plain", "simple", "--mode a|b"}) {
    CHECK(f.help().find(part) != std::string::npos);
  }
}

}  // namespace flags_test
