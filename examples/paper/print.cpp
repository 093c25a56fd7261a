// SPDX-License-Identifier: Apache-2.0
// A table has one grid of words, which text and Markdown set differently.

#include "examples/paper/print.hpp"

#include "protrain/io/json.hpp"
#include "protrain/report/format.hpp"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace paper {
namespace {

using protrain::io::json;
using protrain::report::fixed;

using line = std::vector<std::string>;

std::string ratio_words(row const& r, prediction const& p, std::size_t quantity) {
  auto const x = ratio(r, p, quantity);
  return x ? fixed(*x, 2) : "-";
}

/// One quantity: a line for each row, the ways beside each other, each with its ratio.
std::vector<line> wide_grid(table const& t) {
  line head{"", "machine", "paper"};
  for (prediction const& p : t.rows.front().predicted) {
    head.insert(head.end(), {p.by, "ratio"});
    if (t.micro_batches) {
      head.emplace_back("micro-batch");
    }
  }
  std::vector<line> out{head};
  for (row const& r : t.rows) {
    line next{r.name, r.machine, fixed(r.paper.front(), t.digits)};
    for (prediction const& p : r.predicted) {
      next.push_back(p.values.empty() ? "does not fit" : fixed(p.values.front(), t.digits));
      next.push_back(ratio_words(r, p, 0));
      if (t.micro_batches) {
        next.push_back(std::to_string(p.micro_batch));
      }
    }
    out.push_back(next);
  }
  return out;
}

/// Several quantities: a line for the paper and one for each way, with ratios in brackets.
std::vector<line> tall_grid(table const& t) {
  line head{"", "machine", "by"};
  head.insert(head.end(), t.quantities.begin(), t.quantities.end());
  std::vector<line> out{head};
  for (row const& r : t.rows) {
    line printed{r.name, r.machine, "paper"};
    for (double const x : r.paper) {
      printed.push_back(fixed(x, t.digits));
    }
    if (!r.paper.empty()) {
      out.push_back(printed);
    }
    for (prediction const& p : r.predicted) {
      line next{r.name, r.machine, p.by};
      for (std::size_t q = 0; q < t.quantities.size(); ++q) {
        std::string const brackets = ratio(r, p, q) ? " (" + ratio_words(r, p, q) + ")" : "";
        next.push_back(q < p.values.size() ? fixed(p.values[q], t.digits) + brackets
                                           : "does not fit");
      }
      out.push_back(next);
    }
  }
  return out;
}

std::vector<line> grid(table const& t) {
  return t.quantities.size() == 1 ? wide_grid(t) : tall_grid(t);
}

std::string caption(table const& t) {
  bool const numbered = t.id.size() == 1;
  return (numbered ? "Table " + t.id + ": " : "Ablation: ") + t.title;
}

json cells(table const& t, row const& r) {
  json out = json::array();
  for (std::size_t q = 0; q < t.quantities.size(); ++q) {
    json predictions = json::array();
    for (prediction const& p : r.predicted) {
      json one{{"by", p.by}, {"value", nullptr}, {"ratio", nullptr}};
      if (q < p.values.size()) {
        one["value"] = p.values[q];
      }
      if (auto const x = ratio(r, p, q)) {
        one["ratio"] = *x;
      }
      predictions.push_back(std::move(one));
    }
    json cell{
        {"quantity", t.quantities[q]}, {"paper", nullptr}, {"predictions", std::move(predictions)}};
    if (q < r.paper.size()) {
      cell["paper"] = r.paper[q];
    }
    out.push_back(std::move(cell));
  }
  return out;
}

json plans(row const& r) {
  json out = json::array();
  for (prediction const& p : r.predicted) {
    json one{{"by", p.by}, {"micro_batch", p.micro_batch}, {"string", nullptr}};
    if (!p.plan.empty()) {
      one["string"] = p.plan;
    }
    out.push_back(std::move(one));
  }
  return out;
}

}  // namespace

std::string as_text(table const& t) {
  std::vector<line> const all = grid(t);
  std::vector<std::size_t> widths(all.front().size(), 0);
  for (line const& l : all) {
    for (std::size_t i = 0; i < l.size(); ++i) {
      widths[i] = std::max(widths[i], l[i].size());
    }
  }
  std::string out = caption(t) + "\n";
  for (std::string const& rule : t.rules) {
    out += "  " + rule + "\n";
  }
  for (line const& l : all) {
    for (std::size_t i = 0; i < l.size(); ++i) {
      bool const words = i < 2 || (i == 2 && t.quantities.size() > 1);
      out += (i == 0 ? "" : "  ") + (words ? protrain::report::left(l[i], widths[i])
                                           : protrain::report::right(l[i], widths[i]));
    }
    out += "\n";
  }
  return out;
}

std::string as_markdown(table const& t) {
  std::string out = "**" + caption(t) + "**\n\n";
  bool first = true;
  for (line const& l : grid(t)) {
    for (std::string const& word : l) {
      out += "| " + word + (word.empty() ? "" : " ");
    }
    out += "|\n";
    if (first) {
      for (std::size_t i = 0; i < l.size(); ++i) {
        out += "| --- ";
      }
      out += "|\n";
    }
    first = false;
  }
  return out;
}

std::string as_json(std::vector<table> const& all) {
  json tables = json::array();
  for (table const& t : all) {
    json rows = json::array();
    for (row const& r : t.rows) {
      rows.push_back(
          {{"row", r.name}, {"machine", r.machine}, {"cells", cells(t, r)}, {"plans", plans(r)}});
    }
    tables.push_back({{"table", t.id}, {"title", t.title}, {"rules", t.rules}, {"rows", rows}});
  }
  json const out{{"protrain", "paper_tables"}, {"version", 1}, {"tables", std::move(tables)}};
  return out.dump(2);
}

}  // namespace paper
