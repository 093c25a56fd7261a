// SPDX-License-Identifier: Apache-2.0
// Machine files: round trips, and figures that are refused.

#include "protrain/io/machine.hpp"

#include "protrain/hw/presets.hpp"
#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <string>

namespace machine_test {

using protrain::io::json_document;
using protrain_test::refused;
using protrain_test::with;

namespace {

std::string const good = protrain::io::to_json(protrain::hw::h200x1()).dump();

protrain::hw::machine parse(std::string const& text) {
  json_document const file("m.json", text);
  return protrain::io::parse_machine(file.top());
}

}  // namespace

TEST_CASE("every preset survives a file") {
  protrain_test::scratch_folder const folder;
  for (auto const name : protrain::hw::preset_names) {
    auto const m = *protrain::hw::preset(name);
    protrain::io::write_machine(folder / "m.json", m);
    CHECK(protrain::io::read_machine(folder / "m.json") == m);
  }
}

TEST_CASE("usable threads may be left out, and survive a file") {
  CHECK(parse(good).usable_threads == 0);
  protrain::hw::machine m = protrain::hw::h200x1();
  m.usable_threads = 5;
  CHECK(parse(protrain::io::to_json(m).dump()) == m);
  for (std::string const broken : {"0", "-1", "1.5", "\"all\"", "1048577"}) {
    CHECK(refused([&] {
            parse(with(
                good, "\"host_threads\":16", "\"host_threads\":16,\"usable_threads\":" + broken));
          }).field() == "usable_threads");
  }
}

TEST_CASE("each figure is needed, and is a positive integer of the unit in its name") {
  json_document const file("m.json", good);
  auto const object = protrain::io::json::parse(good);
  for (auto const& member : object.items()) {
    CAPTURE(member.key());
    if (member.key() == "concurrent" || member.key() == "peak") {
      continue;
    }
    auto without = object;
    without.erase(member.key());
    CHECK(refused([&] { parse(without.dump()); }).field() == member.key());
    if (!member.value().is_number()) {
      continue;
    }
    for (protrain::io::json const& broken : {protrain::io::json(-1),
                                             protrain::io::json(1.5),
                                             protrain::io::json("55 GB/s"),
                                             protrain::io::json(~std::uint64_t{0})}) {
      auto other = object;
      other[member.key()] = broken;
      CHECK(refused([&] { parse(other.dump()); }).field() == member.key());
    }
  }
  CHECK(refused([&] {
          parse(
              with(good, "\"fp32_flop_per_second\":46900000000000", "\"fp32_flop_per_second\":0"));
        }).field() == "fp32_flop_per_second");
}

TEST_CASE("figures of what runs together survive, and each may be missing") {
  using protrain::hw::machine;
  std::uint64_t next = 1;
  machine all = protrain::hw::host_demo();
  CHECK(protrain::io::to_json(all).count("concurrent") == 0);
  all.collective_latency = {77};
  protrain::io::detail::each_concurrent(
      all.concurrent,
      [&](std::string const&, protrain::bandwidth& rate) { rate.per_second = next++; });
  CHECK(next == 10);
  auto const object = protrain::io::to_json(all);
  CHECK(parse(object.dump()) == all);
  for (auto const& member : object["concurrent"].items()) {
    CAPTURE(member.key());
    auto without = object;
    without["concurrent"].erase(member.key());
    machine const m = parse(without.dump());
    protrain::io::detail::each_concurrent(
        m.concurrent, [&](std::string const& name, protrain::bandwidth const& rate) {
          CHECK((rate.per_second == 0) == (name == member.key()));
        });
    auto broken = object;
    broken["concurrent"][member.key()] = 0;
    CHECK(refused([&] { parse(broken.dump()); }).field() == "concurrent." + member.key());
  }
  auto other = object;
  other["concurrent"]["beside_nothing"] = 1;
  CHECK(refused([&] { parse(other.dump()); }).field() == "concurrent.beside_nothing");
  other = object;
  other["collective_latency_ps"] = 1.5;
  CHECK(refused([&] { parse(other.dump()); }).field() == "collective_latency_ps");
}

TEST_CASE("hosts and peaks may be missing; a peak says where it is from") {
  auto const object = protrain::io::to_json(*protrain::hw::preset("a100x4x4nodes"));
  CHECK(object["hosts"] == 4);
  auto without = object;
  without.erase("hosts");
  without.erase("peak");
  CHECK(parse(without.dump()).hosts == 1);
  CHECK(parse(without.dump()).peak == protrain::hw::peak_rates{});
  for (auto const& member : object["peak"].items()) {
    CAPTURE(member.key());
    auto other = object;
    other["peak"].erase(member.key());
    if (member.key() == "source") {
      CHECK(refused([&] { parse(other.dump()); }).field() == "peak.source");
      continue;
    }
    CHECK(parse(other.dump()) != parse(object.dump()));
    other["peak"][member.key()] = -1;
    CHECK(refused([&] { parse(other.dump()); }).field() == "peak." + member.key());
  }
  auto other = object;
  other["peak"]["int8_flop_per_second"] = 1;
  CHECK(refused([&] { parse(other.dump()); }).field() == "peak.int8_flop_per_second");
  other = object;
  for (int const broken : {0, -1, 16'385}) {  // of four devices: at most 65,536 ranks
    other["hosts"] = broken;
    CHECK(refused([&] { parse(other.dump()); }).field() == "hosts");
  }
  other["hosts"] = 16'384;
  CHECK(parse(other.dump()).hosts == 16'384);
}

TEST_CASE("unknown members, other kinds and versions") {
  CHECK(refused([&] { parse(with(good, "\"host_threads\"", "\"cores\"")); }).field() == "cores");
  CHECK(refused([&] {
          parse(with(good, "\"protrain\":\"machine\"", "\"protrain\":\"trace\""));
        }).field() == "protrain");
  CHECK(refused([&] { parse(with(good, "\"version\":1", "\"version\":2")); }).field() == "version");
}

}  // namespace machine_test
