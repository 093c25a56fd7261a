// SPDX-License-Identifier: Apache-2.0
// The tables of the ProTrain paper beside what the planner predicts for the same machines.

#include "examples/cli/flags.hpp"
#include "examples/cli/program.hpp"
#include "examples/paper/predict.hpp"
#include "examples/paper/print.hpp"
#include "examples/paper/table.hpp"
#include "protrain/report/progress.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

/// How much a search may do, in programs; all of it where the flag isn't given.
protrain::plan::limits read_limits(cli::flags const& f) {
  protrain::plan::limits out;
  if (f.given("programs")) {
    auto const n = static_cast<std::uint32_t>(f.integer("programs", 0, 1, 1U << 20U));
    out.programs = n;
    out.refinements = std::min(out.refinements, n);
  }
  return out;
}

std::vector<paper::table> predict(std::string const& wanted, paper::options const& o) {
  std::vector<paper::table> out;
  auto const asked = [&](char const* id) { return wanted == "all" || wanted == id; };
  if (asked("2")) {
    out.push_back(predict_table2(o));
  }
  if (asked("3")) {
    out.push_back(predict_table3(o));
  }
  if (asked("4")) {
    out.push_back(predict_table4(o));
  }
  if (asked("ablation")) {
    for (paper::table& t : predict_ablation(o)) {
      out.push_back(std::move(t));
    }
  }
  return out;
}

int run(int count, char** words) {
  cli::flags f(
      "Usage: paper_tables [FLAGS]\n\nPrints tables 2, 3 and 4 and the ablation of the ProTrain "
      "paper "
      "beside predictions for\nthe same machines, with prediction over paper for each. Nothing is "
      "measured.");
  f.add("table", "2|3|4|ablation|all", "all", "which; all take minutes")
      .add("programs", "N", "as plan's", "compiled at most in a search: fewer are faster and worse")
      .add_switch("markdown", "tables for a document")
      .add_switch("json", "print one JSON object")
      .add_switch("help", "print this");
  if (f.parse(count, words).given("help")) {
    std::printf("%s", f.help().c_str());
    return 0;
  }
  if (f.given("json") && f.given("markdown")) {
    throw cli::usage_error("--json: is one way to print, and --markdown another; keep one");
  }
  std::string const wanted = f.choice("table", "all", {"2", "3", "4", "ablation", "all"});
  protrain::report::progress line(stderr);
  paper::options const o{.limits = read_limits(f),
                         .progress = [&](std::string const& what) { line.show(what); }};
  std::vector<paper::table> const tables = predict(wanted, o);
  line.clear();
  if (f.given("json")) {
    std::printf("%s\n", as_json(tables).c_str());
    return 0;
  }
  for (std::size_t i = 0; i < tables.size(); ++i) {
    std::string const text = f.given("markdown") ? as_markdown(tables[i]) : as_text(tables[i]);
    std::printf("%s%s", i == 0 ? "" : "\n", text.c_str());
  }
  return 0;
}

}  // namespace

int main(int count, char** words) { return cli::run_program("paper_tables", run, count, words); }
