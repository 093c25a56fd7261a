// SPDX-License-Identifier: Apache-2.0
// The program `probe` as a user runs it: what it prints, files that `plan` takes, refusals.

#include "protrain/hw/machine.hpp"
#include "protrain/io/json.hpp"
#include "protrain/io/machine.hpp"
#include "test/unit/examples/command.hpp"

#include <doctest/doctest.h>

#include <string>

namespace probe_test {

using protrain_test::command;
using protrain_test::scratch_folder;
using protrain_test::split;

namespace {

constexpr auto binary = "examples/probe";
std::string const quick = "--copy 64KiB ";

protrain::hw::machine parse(std::string const& text) {
  protrain::io::json_document const file("stdout", text);
  return protrain::io::parse_machine(file.top());
}

}  // namespace

TEST_CASE("help, with every flag") {
  command c(binary, {"--help"});
  CHECK(c.wait().code == 0);
  for (char const* const flag :
       {"device", "world", "rate", "copy", "name", "out", "json", "help"}) {
    CHECK(c.says("\n  --" + std::string(flag) + " "));
  }
}

TEST_CASE("text: each figure, and the machine") {
  command c(binary, split(quick + "--name this-one"));
  CHECK(c.wait().code == 0);
  CHECK(c.err.empty());
  for (char const* const part : {"copy up",
                                 "CPU optimizer beside copies",
                                 "\nthis-one\n",
                                 "host to device",
                                 "bf16 products"}) {
    CAPTURE(part);
    CHECK(c.says(part));
  }
  CHECK_FALSE(c.says("all ranks"));
}

TEST_CASE("JSON, of several ranks; the slowed rate is found within a wide band") {
  command c(binary, split(quick + "--json --world 2 --rate 20MB"));
  CHECK(c.wait().code == 0);
  protrain::hw::machine const m = parse(c.out);
  CHECK(m.name == "probed");
  CHECK(m.devices == 2);
  CHECK(m.device_memory.value > 0);
  CHECK(m.host_to_device.per_second > 5'000'000);
  CHECK(m.host_to_device.per_second < 30'000'000);
  CHECK(m.concurrent.all_ranks.host_to_device.per_second < 30'000'000);
}

TEST_CASE("a file that plan takes, also from the serial device") {
  scratch_folder const folder;
  std::string const file = folder / "mine.json";
  for (std::string const device : {"host", "serial"}) {
    command c(binary, split(quick + "--name mine --device " + device + " --out " + file));
    CHECK(c.wait().code == 0);
    command planned("examples/plan", split("--machine " + file));
    CHECK(planned.wait().code == 0);
    CHECK(planned.line("machine     ") == "mine (measured by probe on device " + device + ")");
  }
}

TEST_CASE("bad flags: one line, exit 1; a file that can't be written: exit 3") {
  for (char const* const words :
       {"--device cuda", "--world 0", "--copy 1KiB", "--rate fast", "--copy 2TiB", "--outt x"}) {
    CAPTURE(words);
    command c(binary, split(words));
    CHECK(c.wait().code == 1);
    CHECK(c.one_line());
    CHECK(c.out.empty());
  }
  command c(binary, split(quick + "--out /nowhere/at/all.json"));
  CHECK(c.wait().code == 3);
  CHECK(c.one_line());
}

}  // namespace probe_test
