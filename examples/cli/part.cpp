// SPDX-License-Identifier: Apache-2.0
// The only translation unit of the examples that knows regular expressions.

#include "examples/cli/part.hpp"

#include "protrain/model/adapters.hpp"

#include <cstddef>
#include <cstdint>
#include <regex>
#include <string>
#include <string_view>

namespace cli {
namespace {

namespace model = protrain::model;

constexpr char const* default_targets = "q_proj|v_proj|c_attn";

/// Matches anywhere in a name.
class name_pattern {
 public:
  name_pattern(flags const& f, char const* flag, std::string const& fallback)
      : flags_(&f), flag_(flag), pattern_(compiled(f, flag, f.text(flag).value_or(fallback))) {}

  bool operator()(std::string_view name) const {
    try {
      return std::regex_search(name.begin(), name.end(), pattern_);
    } catch (std::regex_error const&) {
      flags_->refuse(flag_, "takes too much work to match a name; give a simpler one");
    }
  }

 private:
  static std::regex compiled(flags const& f, char const* flag, std::string const& text) {
    constexpr std::size_t longest = 1000;  // the library's expressions recurse
    auto const refuse = [&] {
      f.refuse(flag,
               "must be a regular expression of at most 1000 characters, as in "
               "'layers\\.0\\.|norm'");
    };
    if (text.size() > longest) {
      refuse();
    }
    try {
      return std::regex(text, std::regex::ECMAScript | std::regex::nosubs);
    } catch (std::regex_error const&) {  // which doesn't say in words that help
      refuse();
    }
    return {};
  }

  flags const* flags_;
  char const* flag_;
  std::regex pattern_;
};

}  // namespace

void add_part_flags(flags& f) {
  f.add("trainable", "REGEX", "all", "train only parameters with such names; others are frozen")
      .add("lora-rank", "N", "0", "adapters of this rank, all else frozen; 0 means none")
      .add("lora-targets", "REGEX", default_targets, "matrices that get adapters");
}

bool trains_part(flags const& f) {
  return f.given("trainable") || f.given("lora-rank") || f.given("lora-targets");
}

std::vector<model::parameter> read_parameters(flags const& f,
                                              model::decoder_config const& c,
                                              protrain::dtype type) {
  auto table = decoder_parameters(c, type);
  std::uint64_t const rank = f.integer("lora-rank", 0, 0, c.hidden);
  if (rank == 0 && f.given("lora-targets")) {
    f.refuse("lora-targets", "needs --lora-rank");
  }
  if (f.given("trainable")) {
    if (train_only(table, name_pattern(f, "trainable", "")) == 0) {
      f.refuse("trainable",
               "names no parameter; there are " + std::string(table.front().name.view()) + " to " +
                   std::string(table.back().name.view()));
    }
  } else if (rank > 0) {
    train_only(table, [](std::string_view) { return false; });
  }
  if (rank > 0 &&
      add_adapters(table, rank, name_pattern(f, "lora-targets", default_targets)) == 0) {
    f.refuse("lora-targets",
             "names no matrix of a layer or an untied head that is at least as wide and high as "
             "the rank");
  }
  return table;
}

}  // namespace cli
