// SPDX-License-Identifier: Apache-2.0
// Log lines: round-trip decimals, bits, null for what is no number.

#include "protrain/io/log.hpp"

#include "protrain/io/json.hpp"
#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <limits>
#include <random>
#include <string>

namespace log_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using io::json;

TEST_CASE("decimals read back as the same bits, for floats of every size") {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    auto const x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (!std::isfinite(x)) {
      continue;
    }
    auto const line = json::parse(io::log_line({.step = 1, .loss = x, .seconds = 1}));
    CHECK(std::bit_cast<std::uint32_t>(static_cast<float>(line["loss"].get<double>())) ==
          std::bit_cast<std::uint32_t>(x));
    CHECK(std::stoul(line["loss_bits"].get<std::string>(), nullptr, 16) ==
          std::bit_cast<std::uint32_t>(x));
  }
}

TEST_CASE("the members of a line") {
  io::memory_record memory{.device_peak = 1000, .device_peak_predicted = 1001, .host_pinned = 5};
  memory.measured.at_peak[static_cast<std::size_t>(category::activations)] = 7;
  memory.predicted.maximum[static_cast<std::size_t>(category::scratch)] = 9;
  auto const text = io::log_line({.step = 3,
                                  .loss = 5.5F,
                                  .grad_norm = 0.1F,
                                  .grad_norm_clipped = 0.05F,
                                  .tokens = 64,
                                  .seconds = 0.25,
                                  .memory = memory});
  CHECK(text.find(R"({"step":3,"loss":5.5,"loss_bits":"40b00000","grad_norm":0.1,)"
                  R"("grad_norm_bits":"3dcccccd","grad_norm_clipped":0.05,"tokens":64,)"
                  R"("seconds":0.25,"tokens_per_second":256,"device_peak_bytes":1000,)"
                  R"("device_peak_predicted_bytes":1001,"host_pinned_bytes":5,"categories":{)") ==
        0);
  auto const line = json::parse(text);
  CHECK(line["categories"].size() == category_count - 1);
  CHECK(line["categories"]["activations"]["at_peak"] == 7);
  CHECK(line["categories_predicted"]["scratch"]["maximum"] == 9);
  CHECK_FALSE(line["categories"].contains("swapped"));
  CHECK(line["skipped"] == false);
}

TEST_CASE("what is no number is null, and its bits stay") {
  float const nan = std::bit_cast<float>(0x7FC00001U);
  auto const line = json::parse(io::log_line({.step = 1,
                                              .loss = nan,
                                              .grad_norm = -std::numeric_limits<float>::infinity(),
                                              .seconds = 0}));
  CHECK(line["loss"].is_null());
  CHECK(line["loss_bits"] == "7fc00001");
  CHECK(line["grad_norm"].is_null());
  CHECK(line["grad_norm_bits"] == "ff800000");
  CHECK(line["tokens_per_second"].is_null());
  CHECK(line["device_peak_bytes"].is_null());
  CHECK(line["categories"].is_null());
}

TEST_CASE("a log has a line per step, at once") {
  protrain_test::scratch_folder const folder;
  io::step_log log(folder / "run.jsonl");
  log.add({.step = 1, .seconds = 1});
  log.add({.step = 2, .seconds = 1});
  std::string const text = io::read_file(folder / "run.jsonl");
  CHECK(std::count(text.begin(), text.end(), '\n') == 2);
  CHECK(text.back() == '\n');
}

TEST_CASE("a log that can't be made or written is named") {
  auto const e = protrain_test::refused([] { io::step_log const log("/nonexistent/run.jsonl"); });
  CHECK(e.file() == "/nonexistent/run.jsonl");
  io::step_log full("/dev/full");
  CHECK_THROWS_AS(full.add({.step = 1, .seconds = 1}), io::write_error);
}

}  // namespace log_test
