// SPDX-License-Identifier: Apache-2.0
// Trace files: what is written reads back equal, and what doesn't belong together is refused.

#include "protrain/io/trace.hpp"

#include "test/unit/io/support.hpp"

#include <doctest/doctest.h>

#include <random>
#include <string>

namespace trace_test {

using namespace protrain;  // NOLINT(google-build-using-namespace): values of many folders
using protrain_test::refused;
using protrain_test::with;

namespace {

trace::trace example() {
  trace::trace t{.from = trace::source::measured,
                 .job = {.micro_batch = 2,
                         .sequence = 32,
                         .accumulate = 3,
                         .type = dtype::bf16,
                         .state = model::state_format::split_master,
                         .clip = 0.1F,
                         .skip = true,
                         .seed = ~std::uint64_t{0},
                         .dropout = 0.1F,
                         .loss_scale = 0x1p-100F,
                         .debug = true}};
  t.parameters = {
      {.name = "wte \"quoted\"", .shape = {256, 32}, .type = dtype::bf16, .uses = {{0}, {2}}},
      {.name = "empty", .shape = {0, 7}, .type = dtype::bf16, .trainable = false, .uses = {{1}}},
      {.name = "scalar",
       .shape = {},
       .type = dtype::bf16,
       .decay = false,
       .learning_rate_scale = 0.1F,
       .uses = {{1}}}};
  t.shapes = {{.name = "embedding", .output = {4096}, .reads_input = false},
              {.name = "block",
               .pinned = trace::pin::checkpoint,
               .forward = {1'234'567},
               .backward = {2'000'000},
               .input = {4096},
               .output = {4096},
               .saved = {10'000'000'000},
               .scratch_forward = {512},
               .scratch_backward = {1024},
               .levels = {{.name = "cheap",
                           .saved = {9'000'000'000},
                           .rebuilt = {1'000'000'000},
                           .reads_input = true,
                           .rebuild = {1'001}},
                          {.name = "attention",
                           .saved = {256},
                           .rebuilt = {9'999'999'744},
                           .scratch = {512},
                           .rebuild = {777'000}}},
               .operators = {{.name = "attn",
                              .forward = {1},
                              .backward = {999},
                              .scratch_peak = {7},
                              .saved = {512},
                              .delta_before = {768}},
                             {.name = "mlp"}}},
              {.name = "head", .pinned = trace::pin::swap, .input = {4096}}};
  t.blocks = {{0}, {1}, {2}};
  t.batch = {512};
  t.outside = {77};
  return t;
}

trace::trace parse(std::string const& text) {
  io::json_document const file("t.json", text);
  return io::parse_trace(file.top());
}

std::string const good = io::to_json(example()).dump();

}  // namespace

TEST_CASE("a trace survives a file, to the picosecond") {
  protrain_test::scratch_folder const folder;
  io::write_trace(folder / "t.json", example());
  trace::trace const back = io::read_trace(folder / "t.json");
  CHECK(back == example());
  CHECK(trace::fingerprint(back) == trace::fingerprint(example()));
}

TEST_CASE("random values survive") {
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    trace::trace t = example();
    t.shapes[1].forward = {random() % 2'000'000'000'000'000};
    t.shapes[1].backward = {random() % 1'000'000};
    t.shapes[0].saved = {random() >> 9U};
    t.job.seed = random();
    t.job.clip = static_cast<float>(random() % 1000) / 7.0F;
    t.from = static_cast<trace::source>(random() % 3);
    CHECK(parse(io::to_json(t).dump()) == t);
  }
}

TEST_CASE("a parameter without a learning-rate scale has 1") {
  auto object = io::json::parse(good);
  object.erase("fingerprint");
  object["parameters"][2].erase("learning_rate_scale");
  trace::trace const t = parse(object.dump());
  CHECK(t.parameters[2].learning_rate_scale == 1);
  CHECK(example().parameters[2].learning_rate_scale == 0.1F);
}

TEST_CASE("an operator that says neither what it saves nor what comes before it has 0") {
  auto object = io::json::parse(good);
  object["shapes"][1]["ops"][0].erase("saved_bytes");
  object["shapes"][1]["ops"][0].erase("delta_before_bytes");
  trace::operator_facts const of = parse(object.dump()).shapes[1].operators[0];
  CHECK(of == trace::operator_facts{
                  .name = "attn", .forward = {1}, .backward = {999}, .scratch_peak = {7}});
}

TEST_CASE("members that must agree") {
  CHECK(refused([&] {
          parse(with(good, "\"saved_bytes\":10000000000", "\"saved_bytes\":1"));
        }).field() == "fingerprint");
  auto without = io::json::parse(good);
  without.erase("fingerprint");
  CHECK(parse(without.dump()) == example());
  without["shapes"][1]["saved_bytes"] = 1;  // a what-if question
  CHECK(parse(without.dump()).shapes[1].saved == bytes{1});
  without["sequence"] = 33;
  CHECK(refused([&] { parse(without.dump()); }).field() == "sequence");
  without["sequence"] = 32;
  without["dtype"] = "fp32";
  CHECK(refused([&] { parse(without.dump()); }).field() == "dtype");
}

TEST_CASE("broken members are named by their path") {
  auto const broken = [&](auto change) {
    auto object = io::json::parse(good);
    change(object);
    return refused([&] { parse(object.dump()); }).field();
  };
  using io::json;
  CHECK(broken([](json& t) { t["shapes"][1]["ops"][0]["forward_ns"] = -1; }) ==
        "shapes[1].ops[0].forward_ns");
  CHECK(broken([](json& t) { t["shapes"][1]["ops"][0].erase("name"); }) == "shapes[1].ops[0].name");
  CHECK(broken([](json& t) { t["shapes"][2]["pinned"] = "drop"; }) == "shapes[2].pinned");
  CHECK(broken([](json& t) { t["shapes"][0]["levels"] = {1}; }) == "shapes[0].levels[0]");
  CHECK(broken([](json& t) { t["shapes"][0]["levels"] = json::array({{}, {}, {}, {}, {}}); }) ==
        "shapes[0].levels");
  CHECK(broken([](json& t) { t["shapes"][1]["levels"][1].erase("saved_bytes"); }) ==
        "shapes[1].levels[1].saved_bytes");
  CHECK(broken([](json& t) { t["shapes"][1]["levels"][0]["rebuild_ns"] = -1; }) ==
        "shapes[1].levels[0].rebuild_ns");
  CHECK(broken([](json& t) { t["shapes"] = json::array(); }) == "shapes");
  CHECK(broken([](json& t) { t["blocks"][2] = 3; }) == "blocks[2]");
  CHECK(broken([](json& t) { t["blocks"] = json::array(); }) == "blocks");
  CHECK(broken([](json& t) { t["parameters"][0]["uses"] = {2, 0}; }) == "parameters[0].uses");
  CHECK(broken([](json& t) { t["parameters"][0]["uses"] = json::array(); }) ==
        "parameters[0].uses");
  CHECK(broken([](json& t) { t["parameters"][0]["uses"][1] = 3; }) == "parameters[0].uses[1]");
  CHECK(broken([](json& t) { t["parameters"][0]["dtype"] = "fp8"; }) == "parameters[0].dtype");
  CHECK(broken([](json& t) { t["parameters"][0]["learning_rate_scale"] = -1; }) ==
        "parameters[0].learning_rate_scale");
  CHECK(broken([](json& t) { t["job"]["clip"] = -1; }) == "job.clip");
  CHECK(broken([](json& t) { t["job"]["sequence"] = 0; }) == "job.sequence");
  CHECK(broken([](json& t) { t["source"] = "guessed"; }) == "source");
  CHECK(broken([](json& t) { t["shapes"][0]["save_bytes"] = 1; }) == "shapes[0].save_bytes");
}

TEST_CASE("no size overflows") {
  auto object = io::json::parse(good);
  object["parameters"][0]["shape"] = {1ULL << 32U, 1ULL << 32U};
  CHECK(refused([&] { parse(object.dump()); }).field() == "parameters[0].shape");
  object["parameters"][0]["shape"] = {1ULL << 28U, 1ULL << 28U};
  CHECK(refused([&] { parse(object.dump()); }).field() == "parameters[2].shape");
}

}  // namespace trace_test
