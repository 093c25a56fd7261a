// SPDX-License-Identifier: Apache-2.0
#pragma once
// The conformance kit: runs one block alone, several times, and reports what a block may not do.
// docs/checking-blocks.md says what each law protects.

#include "protrain/block/block_type.hpp"
#include "protrain/block/detail/lone_block.hpp"
#include "protrain/block/error.hpp"
#include "protrain/block/stack.hpp"
#include "protrain/model/job.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::block {

/// What a block owes, in the order in which it is checked.
enum class block_law : std::uint8_t {
  runs,           ///< describe and the passes raise no error
  promise,        ///< saved and scratch bytes stay within what the dry run asked for
  bounds,         ///< nothing is written outside the block's tensors
  read_only,      ///< x, dy, parameters and batch tensors stay as they are
  repeats,        ///< a second time gives the same bits
  contents,       ///< nothing depends on what outputs, saves or scratch held before
  addresses,      ///< nothing depends on where memory lies
  recompute,      ///< saves what forward saved, with the same bits
  levels,         ///< what a save level drops is rebuilt with the same bits, from what is kept
  shapes,         ///< saves and scratch follow from shapes, never from data
  contributions,  ///< gradients are added to or overwritten, and not read otherwise
  evaluate,       ///< without dropout, an evaluation is a forward
  gradients       ///< central differences agree
};

constexpr std::string_view name_of(block_law l) noexcept {
  constexpr std::array<std::string_view, 13> names{"runs",
                                                   "promise",
                                                   "bounds",
                                                   "read_only",
                                                   "repeats",
                                                   "contents",
                                                   "addresses",
                                                   "recompute",
                                                   "levels",
                                                   "shapes",
                                                   "contributions",
                                                   "evaluate",
                                                   "gradients"};
  return names[static_cast<std::size_t>(l)];
}

/// One broken law, at the first element that shows it.
struct finding {
  block_law law{};
  std::string block{};
  std::string tensor{};  ///< "y", "dx", "loss", "saved 'u'", "gradient 'weight'"; empty if none is
  std::uint64_t element = 0;
  double expected = 0;
  double found = 0;
  std::string what{};  ///< how the two came about, or the error's message

  /// One line.
  std::string text() const {
    std::string out = std::string(name_of(law)) + ": block " + block + ": ";
    if (!tensor.empty()) {
      out += tensor + ", element " + std::to_string(element) + ": " + std::to_string(found) +
             " instead of " + std::to_string(expected) + "; ";
    }
    return out + what;
  }
  bool operator==(finding const&) const = default;
};

/// What the kit found.
struct check_report {
  std::vector<finding> findings{};

  bool ok() const noexcept { return findings.empty(); }
  bool broken(block_law l) const noexcept {
    return std::ranges::find(findings, l, &finding::law) != findings.end();
  }
  /// A line for each finding; empty if there is none.
  std::string text() const {
    std::string out;
    for (finding const& f : findings) {
      out += f.text() + "\n";
    }
    return out;
  }
};

namespace detail {

class checker {
 public:
  checker(lone_table alone, lone_table without_dropout, check_options options)
      : alone_(std::move(alone)),
        evaluated_(std::move(without_dropout)),
        options_(std::move(options)) {}

  /// A law that others build on stops the run where it is broken.
  check_report run() {
    lone_block b(alone_, options_, {.fill = zeros});
    attempt(block_law::runs, [&] { first(b); });
    if (report_.ok()) {
      attempt(block_law::contents, [&] { contents(b); });
      attempt(block_law::addresses, [&] { addresses(); });
    }
    if (report_.ok()) {
      attempt(block_law::recompute, [&] { recompute(b); });
      attempt(block_law::levels, [&] { levels(b); });
      attempt(block_law::shapes, [&] { shapes(); });
      attempt(block_law::contributions, [&] { contributions(b); });
      attempt(block_law::evaluate, [&] { evaluate(); });
      attempt(block_law::gradients, [&] { gradients(b); });
    }
    return std::move(report_);
  }

 private:
  static constexpr std::uint8_t zeros = 0x00;
  static constexpr std::uint8_t ones = 0xFF;  // a NaN in every floating-point type

  std::string const& name() const { return alone_.entry().name; }

  /// An error that `pass` raises is a finding.
  template <class Pass>
  void attempt(block_law law, Pass const& pass) {
    try {
      pass();
    } catch (block_error const& e) {
      add({.law = e.asked() > 0 ? block_law::promise : law, .what = e.what()});
    } catch (std::exception const& e) {
      add({.law = law, .what = e.what()});
    }
  }

  void add(finding f) {
    f.block = name();
    report_.findings.push_back(std::move(f));
  }

  /// A finding if two runs differ.
  void same(block_law law, snapshot const& expected, snapshot const& found, char const* what) {
    if (auto const d = first_difference(expected, found)) {
      add({.law = law,
           .tensor = d->tensor,
           .element = d->element,
           .expected = d->expected,
           .found = d->found,
           .what = what});
    }
  }

  void first(lone_block& b) {
    b.load(1);
    snapshot const inputs = b.inputs();
    reference_ = b.run();
    same(block_law::read_only, inputs, b.inputs(), "written, but only the engine may write it");
    guards(b);
    promise(b);
    b.load(1);
    same(block_law::repeats, reference_, b.run(), "when run a second time");
  }

  void guards(lone_block const& b) {
    std::string where;
    if (!b.owner().intact(&where)) {
      add({.law = block_law::bounds, .what = "wrote before or behind " + where});
    }
  }

  void promise(lone_block const& b) {
    memory_need const& need = b.owner().need(b.index());
    memory_need const& used = b.owner().used(b.index());
    within(used.saved, need.saved, "what forward saves");
    within(used.scratch_forward, need.scratch_forward, "forward's scratch");
    within(used.scratch_backward, need.scratch_backward, "backward's scratch");
  }

  void within(std::uint64_t asked, std::uint64_t promised, char const* what) {
    if (asked > promised) {
      add({.law = block_law::promise,
           .what = std::string(what) + " takes " + std::to_string(asked) +
                   " bytes, the dry run asked for " + std::to_string(promised)});
    }
  }

  void contents(lone_block& b) {
    b.set(ones);
    b.load(1);
    same(block_law::contents, reference_, b.run(), "when memory held other bits before");
    if (!b.padding_holds(ones)) {
      add({.law = block_law::bounds, .what = "wrote behind a saved tensor"});
    }
    b.set(zeros);
  }

  void addresses() {
    lone_block b(alone_, options_, {.fill = zeros, .shift = 3});
    b.load(1);
    same(block_law::addresses, reference_, b.run(), "when every tensor lies elsewhere");
  }

  void recompute(lone_block& b) {
    b.load(1);
    b.forward(pass::forward);
    snapshot const once = b.saved();
    std::size_t const rows = b.owner().saved_rows(b.index()).size();
    b.forward(pass::recompute);
    snapshot again = b.saved();
    if (b.owner().saved_rows(b.index()).size() != rows) {
      add({.law = block_law::recompute, .what = "recompute saves fewer tensors than forward"});
      return;
    }
    same(block_law::recompute, once, again, "when recomputed");
    b.backward();
    std::ranges::move(b.results(), std::back_inserter(again));
    if (!report_.broken(block_law::recompute)) {
      same(block_law::recompute, reference_, again, "after a recompute");
    }
  }

  /// Each level once over zeros and once over NaNs, which is what a rebuild that reads too much
  /// finds. A line for each level.
  void levels(lone_block& b) {
    for (std::uint32_t level = 1; level <= alone_.entry().levels.size(); ++level) {
      std::size_t const lines = report_.findings.size();
      check_level(b, level, zeros);
      if (report_.findings.size() == lines) {
        check_level(b, level, ones);
      }
    }
    b.set(zeros);
  }
  void check_level(lone_block& b, std::uint32_t level, std::uint8_t before) {
    std::string const where = "at save level '" + alone_.entry().levels[level - 1].name + "'";
    b.set(before);
    b.load(1);
    b.forward(pass::forward, level);
    snapshot const once = b.saved();
    b.rebuild();
    snapshot again = b.saved();
    b.backward();
    std::size_t const lines = report_.findings.size();
    same(block_law::levels, once, again, ("when rebuilt " + where).c_str());
    std::ranges::move(b.results(), std::back_inserter(again));
    if (report_.findings.size() == lines) {
      same(block_law::levels, reference_, again, where.c_str());
    }
    guards(b);
    within(b.owner().used(b.index()).levels[level - 1].scratch,
           b.owner().need(b.index()).levels[level - 1].scratch,
           "a rebuild's scratch");
  }

  void shapes() {
    lone_block a(alone_, options_, {.fill = zeros});
    a.load(1);
    (void)a.run();
    auto const first = a.owner().saved_rows(a.index());
    std::vector<saved_tensor> const one(first.begin(), first.end());
    for (std::uint64_t data = 2; data < 8; ++data) {
      lone_block b(alone_, options_, {.fill = zeros});
      b.load(data);
      (void)b.run();
      bool const saves_alike = std::ranges::equal(one, b.owner().saved_rows(b.index()));
      if (!saves_alike || a.owner().used(a.index()) != b.owner().used(b.index())) {
        add({.law = block_law::shapes,
             .what =
                 saves_alike ? "other data, other scratch" : "other data, other saved tensors"});
        return;
      }
      for (std::uint32_t level = 1; level <= alone_.entry().levels.size(); ++level) {
        a.forward(pass::forward, level);
        b.forward(pass::forward, level);
        if (!std::ranges::equal(a.owner().saved_rows(a.index()), b.owner().saved_rows(b.index()))) {
          add({.law = block_law::shapes, .what = "other data, other tensors that a level drops"});
          return;
        }
      }
    }
  }

  /// Gradients that start at 1: overwritten they are as before, added to they are 1 more.
  void contributions(lone_block& b) {
    b.set(zeros, 1);
    b.load(1);
    snapshot const found = b.run();
    b.set(zeros, 0);
    snapshot wanted = reference_;
    for (std::size_t i = 0; i < found.size() && i < wanted.size(); ++i) {
      if (wanted[i].gradient) {
        allow_sum(wanted[i], found[i]);
      }
    }
    same(block_law::contributions, wanted, found, "when gradients held 1 before");
  }

  /// Lets `wanted` be what was found where that is what an addition to 1 may give.
  static void allow_sum(kept_tensor& wanted, kept_tensor const& found) {
    double const narrow = wanted.facts.type == dtype::f32 ? 1e-3 : 0.125;
    double const rounding = wanted.facts.type == dtype::f64 ? 1e-9 : narrow;
    for (std::uint64_t k = 0; k < wanted.facts.shape.elements(); ++k) {
      double const g = wanted.at(k);
      double const sum = found.at(k);
      if (std::abs(sum - (g + 1)) <= rounding * (1 + std::abs(g))) {
        wanted.set(k, sum);
      }
    }
  }

  void evaluate() {
    lone_block b(evaluated_, options_, {.fill = zeros});
    b.load(1);
    b.forward(pass::forward);
    snapshot const trained = b.outputs();
    b.load(1);
    b.forward(pass::evaluate);
    same(block_law::evaluate, trained, b.outputs(), "in an evaluation, without dropout");
  }

  /// A 16-bit output rounds by more than a difference is.
  bool can_differ() const {
    auto const fine = [](tensor_facts const& t) {
      return t.type != dtype::bf16 && t.type != dtype::f16;
    };
    block_entry const& e = alone_.entry();
    return options_.gradients && fine(e.input) && fine(e.output) &&
           std::ranges::all_of(e.parameters, fine, &entry_parameter::facts);
  }

  void gradients(lone_block& b) {
    if (!can_differ()) {
      return;
    }
    b.load(1);
    for (difference const& d : b.wrong_gradients(reference_)) {
      add({.law = block_law::gradients,
           .tensor = d.tensor,
           .element = d.element,
           .expected = d.expected,
           .found = d.found,
           .what = "against central differences"});
    }
  }

  lone_table alone_;
  lone_table evaluated_;
  check_options options_;
  check_report report_{};
  snapshot reference_{};
};

}  // namespace detail

/// Checks every law of `block_law` on the shapes that `block` describes for `job`. Data are
/// pseudo-random unless `options.load` says otherwise; all memory is the heap's, one thread. A
/// block of 16-bit tensors has no gradients checked: instantiate it in fp32 or fp64 for that. Takes
/// a few dozen passes, and two for every element of a gradient that is looked at.
template <block_type Block>
check_report check_block(Block block, model::job const& job, check_options const& options = {}) {
  try {
    model::job as_given = job;
    as_given.debug = false;  // the kit has guards of its own
    model::job without_dropout = as_given;
    without_dropout.dropout = 0;
    Block other = block;
    return detail::checker(detail::make_lone_table(block, as_given, options.layer),
                           detail::make_lone_table(other, without_dropout, options.layer),
                           options)
        .run();
  } catch (std::exception const& e) {
    return {{{.law = block_law::runs, .block = "?", .what = e.what()}}};
  }
}

}  // namespace protrain::inline v0::block

namespace protrain::inline v0 {
using block::block_law;
using block::check_block;
}  // namespace protrain::inline v0
