// SPDX-License-Identifier: Apache-2.0
// The paper's figures as it prints them, tables that hold what they say, and the program that prints
// them. What is predicted is tested where it is made.

#include "examples/paper/facts.hpp"
#include "examples/paper/print.hpp"
#include "examples/paper/table.hpp"
#include "protrain/hw/presets.hpp"
#include "protrain/io/json.hpp"
#include "protrain/model/decoder.hpp"
#include "test/unit/examples/command.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace paper_tables_test {

using protrain::io::json;
using protrain_test::command;
using protrain_test::split;

namespace {

constexpr auto binary = "examples/paper_tables";

/// Hidden size, blocks, heads, and about how many billions of parameters.
void check_shape(protrain::model::decoder_config const& c,
                 std::uint64_t hidden,
                 std::uint64_t blocks,
                 std::uint64_t heads,
                 double billions) {
  CHECK(c.hidden == hidden);
  CHECK(c.layers == blocks);
  CHECK(c.heads == heads);
  CHECK(c.dropout == 0);
  double const counted = static_cast<double>(parameter_count(c)) * 1e-9;
  CHECK(std::abs(counted - billions) < 0.08 * billions);
}

/// A table with figures that divide exactly.
paper::table example() {
  paper::table t{.id = "3",
                 .title = "Speed",
                 .quantities = {"tokens_per_second"},
                 .micro_batches = true,
                 .rules = {"By rule."}};
  t.rows.push_back({"small", "m1", {400}, {{"ours", {500}, 8, "persist=1"}, {"other", {}, 1, ""}}});
  t.rows.push_back({"large", "m1", {80}, {{"ours", {60}, 2, "persist=0"}, {"other", {40}, 4, ""}}});
  return t;
}

paper::table choices() {
  paper::table t{.id = "4", .title = "Choices", .quantities = {"n_chunk", "n_swap"}};
  t.rows.push_back({"A", "m2", {12, 0}, {{"ours", {18, 5}, 1, ""}, {"other", {}, 1, ""}}});
  t.rows.push_back({"B", "m2", {}, {{"ours", {3, 4}, 1, ""}}});
  return t;
}

/// Every cell of `--json`: ratios are prediction over paper, and nothing where there is none.
void check_cells(json const& table) {
  for (json const& row : table["rows"]) {
    CAPTURE(row["row"]);
    REQUIRE(row["cells"].size() >= 1);
    for (json const& cell : row["cells"]) {
      CHECK(cell["predictions"].size() == row["plans"].size());
      for (json const& p : cell["predictions"]) {
        bool const both = !cell["paper"].is_null() && cell["paper"] != 0.0 && !p["value"].is_null();
        REQUIRE(p["ratio"].is_null() == !both);
        if (both) {
          double const paper = cell["paper"];
          double const value = p["value"];
          CHECK(p["ratio"].get<double>() == doctest::Approx(value / paper));
        }
      }
    }
  }
}

std::vector<double> numbers(json const& row) {
  std::vector<double> out;
  for (json const& cell : row["cells"]) {
    out.push_back(cell["paper"]);
  }
  return out;
}

}  // namespace

TEST_CASE("table 2 as printed, on machines that there are") {
  struct printed {
    char const* machine;
    double billions;
  };
  std::vector<printed> const rows{
      {"rtx3090x1", 34}, {"rtx3090x4", 37}, {"a100x1", 75}, {"a100x4", 87}};
  REQUIRE(paper::table2.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    CHECK(paper::table2[i].machine == rows[i].machine);
    CHECK(paper::table2[i].billions == rows[i].billions);
    CHECK(protrain::hw::preset(rows[i].machine).has_value());
  }
}

TEST_CASE("table 3 as printed, with the shapes of its models") {
  struct printed {
    char const* model;
    char const* machine;
    double tokens;
    std::uint64_t hidden, blocks, heads;
    double billions;
    std::uint64_t batch;
  };
  std::vector<printed> const rows{{"Mistral-7B", "a100x4", 11061, 4096, 32, 32, 7.2, 0},
                                  {"GPT2-10B", "a100x4", 8266, 4096, 48, 32, 10, 0},
                                  {"LLaMA-13B", "a100x4", 6471, 5120, 40, 40, 13, 0},
                                  {"GPT2-20B", "a100x4", 5044, 8192, 24, 64, 20, 0},
                                  {"GPT2-30B", "a100x4", 3431, 8192, 36, 64, 30, 0},
                                  {"OPT-30B", "a100x4", 3266, 7168, 48, 56, 30, 0},
                                  {"LLaMA-34B", "a100x4", 2845, 8192, 48, 64, 34, 0},
                                  {"GPT2-40B", "a100x4", 2724, 8192, 50, 64, 40, 0},
                                  {"GPT2-10B", "rtx3090x4", 2493, 4096, 48, 32, 10, 0},
                                  {"GPT-175B", "a100x4x4nodes", 2219, 12288, 96, 96, 175, 256}};
  REQUIRE(paper::table3.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    paper::throughput const& mine = paper::table3[i];
    printed const& row = rows[i];
    CAPTURE(row.model);
    CHECK(mine.what.name == row.model);
    CHECK(mine.machine == row.machine);
    CHECK(protrain::hw::preset(row.machine).has_value());
    CHECK(mine.tokens_per_second == row.tokens);
    CHECK(mine.batch == row.batch);
    check_shape(mine.what.shape, row.hidden, row.blocks, row.heads, row.billions);
  }
}

TEST_CASE("table 4 as printed; A is for both machines") {
  struct printed {
    char const* name;
    char const* model;
    char const* machine;
    std::uint64_t batch, blocks, checkpoint, swap, chunk, persist, buffer;
  };
  std::vector<printed> const rows{{"A", "GPT2-1B", "rtx3090x4", 8, 32, 0, 0, 12, 12, 0},
                                  {"A", "GPT2-1B", "a100x4", 8, 32, 0, 0, 12, 12, 0},
                                  {"B", "GPT2-1B", "rtx3090x4", 64, 32, 24, 2, 12, 2, 3},
                                  {"C", "GPT2-1B", "a100x4", 64, 32, 0, 0, 12, 12, 0},
                                  {"D", "GPT2-10B", "rtx3090x4", 8, 48, 48, 0, 49, 3, 46},
                                  {"E", "GPT2-10B", "a100x4", 8, 48, 0, 0, 49, 15, 3}};
  REQUIRE(paper::table4.size() == rows.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    paper::configuration const& mine = paper::table4[i];
    printed const& row = rows[i];
    CAPTURE(i);
    CHECK(mine.name == row.name);
    CHECK(mine.what.name == row.model);
    CHECK(mine.machine == row.machine);
    CHECK(mine.what.shape.layers == row.blocks);
    CHECK(std::vector{
              mine.batch, mine.checkpoint, mine.swap, mine.chunks, mine.persist, mine.buffer} ==
          std::vector{row.batch, row.checkpoint, row.swap, row.chunk, row.persist, row.buffer});
  }
}

TEST_CASE("the ablation as printed") {
  REQUIRE(paper::ablations.size() == 3);
  CHECK(paper::ablations[0].without == "without chunk hierarchy");
  CHECK(paper::ablations[0].least == 1.02);
  CHECK(paper::ablations[0].most == 1.19);
  CHECK(paper::ablations[1].without == "without overlapped CPU update");
  CHECK(paper::ablations[1].least == 1.22);
  CHECK(paper::ablations[1].most == 1.22);
  CHECK(paper::ablations[2].without == "checkpoint everything");
  CHECK(paper::ablations[2].least == 1.04);
  CHECK(paper::ablations[2].most == 1.04);
  CHECK(paper::ablation_machine == "rtx3090x4");
  check_shape(paper::ablation_model.shape, 4096, 48, 32, 10);
}

TEST_CASE("a ratio is prediction over paper, and nothing without both") {
  paper::table const t = example();
  CHECK(ratio(t.rows[0], t.rows[0].predicted[0], 0) == 1.25);
  CHECK(ratio(t.rows[1], t.rows[1].predicted[1], 0) == 0.5);
  CHECK_FALSE(ratio(t.rows[0], t.rows[0].predicted[1], 0).has_value());
  CHECK_FALSE(ratio(t.rows[0], t.rows[0].predicted[0], 1).has_value());
  paper::table const c = choices();
  CHECK(ratio(c.rows[0], c.rows[0].predicted[0], 0) == 1.5);
  CHECK_FALSE(ratio(c.rows[0], c.rows[0].predicted[0], 1).has_value());  // of nothing
  CHECK_FALSE(ratio(c.rows[1], c.rows[1].predicted[0], 0).has_value());
}

TEST_CASE(
    "text and Markdown: a line for each row, or for each way where there are many quantities") {
  CHECK(as_text(example()) ==
        "Table 3: Speed\n"
        "  By rule.\n"
        "       machine  paper  ours  ratio  micro-batch         other  ratio  micro-batch\n"
        "small  m1         400   500   1.25            8  does not fit      -            1\n"
        "large  m1          80    60   0.75            2            40   0.50            4\n");
  CHECK(as_markdown(choices()) ==
        "**Table 4: Choices**\n\n"
        "| | machine | by | n_chunk | n_swap |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| A | m2 | paper | 12 | 0 |\n"
        "| A | m2 | ours | 18 (1.50) | 5 |\n"
        "| A | m2 | other | does not fit | does not fit |\n"
        "| B | m2 | ours | 3 | 4 |\n");
}

TEST_CASE("JSON of tables: values, ratios, plans") {
  json const o = json::parse(paper::as_json({example(), choices()}));
  CHECK(o["protrain"] == "paper_tables");
  CHECK(o["version"] == 1);
  REQUIRE(o["tables"].size() == 2);
  json const& small = o["tables"][0]["rows"][0];
  CHECK(small["row"] == "small");
  CHECK(small["machine"] == "m1");
  CHECK(small["cells"][0] ==
        json::parse(R"({"quantity": "tokens_per_second", "paper": 400.0, "predictions": [
          {"by": "ours", "value": 500.0, "ratio": 1.25},
          {"by": "other", "value": null, "ratio": null}]})"));
  CHECK(small["plans"][0] ==
        json::parse(R"({"by": "ours", "micro_batch": 8, "string": "persist=1"})"));
  CHECK(small["plans"][1]["string"].is_null());
  CHECK(o["tables"][1]["rows"][1]["cells"][1]["paper"].is_null());
  check_cells(o["tables"][0]);
  check_cells(o["tables"][1]);
}

TEST_CASE("the program: table 4 of all configurations by three ways") {
  command c(binary, split("--table 4 --programs 1 --json"));
  c.wait();
  REQUIRE(c.code == 0);
  CHECK(c.err.empty());  // no progress into a file
  json const o = json::parse(c.out);
  REQUIRE(o["tables"].size() == 1);
  json const& table = o["tables"][0];
  CHECK(table["table"] == "4");
  CHECK(table["rules"].size() == 3);
  REQUIRE(table["rows"].size() == paper::table4.size());
  check_cells(table);
  CHECK(numbers(table["rows"][4]) == std::vector<double>{49, 3, 46, 0, 48});
  for (json const& row : table["rows"]) {
    REQUIRE(row["plans"].size() == 3);
    CHECK(row["plans"][0]["by"] == "paper's closed form");
    CHECK(row["plans"][1]["by"] == "paper's policies");
    CHECK(row["plans"][2]["by"] == "ours");
    CHECK(row["plans"][1]["string"].get<std::string>().find("time=during_backward") !=
          std::string::npos);
    std::string const name = row["row"];
    CHECK(row["plans"][0]["micro_batch"] == (name.ends_with("batch 64") ? 16 : 2));
  }
}

TEST_CASE("the program: help, and what it refuses") {
  command help(binary, {"--help"});
  CHECK(help.wait().code == 0);
  for (char const* const flag : {"table", "programs", "markdown", "json", "help"}) {
    CHECK(help.says("\n  --" + std::string(flag) + " "));
  }
  for (std::string const words :
       {"--table 5", "--table", "--programs 0", "--json --markdown", "3"}) {
    CAPTURE(words);
    command c(binary, split(words));
    CHECK(c.wait().code == 1);
    CHECK(c.one_line());
    CHECK(c.complains("paper_tables: "));
    CHECK(c.out.empty());
  }
}

}  // namespace paper_tables_test
