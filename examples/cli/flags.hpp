// SPDX-License-Identifier: Apache-2.0
#pragma once
// Command lines of the examples: `--name value` or `--name=value`, and nothing that isn't understood.

#include "protrain/plan/size.hpp"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cli {

/// Bad usage, as one line that names the flag, its value and the cure.
class usage_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Text from outside on one line.
inline std::string quote(std::string_view s) {
  std::string out = "'";
  for (char const c : s.substr(0, 80)) {
    auto const u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7F ? '?' : c;
  }
  return out + (s.size() > 80 ? "...'" : "'");
}

/// The flags of one program. Declare with `add` and `add_switch`, then `parse`, then ask.
class flags {
 public:
  explicit flags(std::string usage) : usage_(std::move(usage)) {}

  /// A flag with a value. `fallback` is what the help shows as default.
  flags& add(std::string name, std::string value, std::string fallback, std::string help) {
    known_.push_back({std::move(name), std::move(value), std::move(fallback), std::move(help), {}});
    return *this;
  }
  /// A flag without a value.
  flags& add_switch(std::string name, std::string help) {
    return add(std::move(name), "", "", std::move(help));
  }

  /// `--help` wins over whatever else is there.
  flags& parse(int count, char const* const* words) {
    for (int i = 1; i < count; ++i) {
      if (std::string_view(words[i]) == "--help") {
        find_known("help").given = "";
        return *this;
      }
    }
    for (int i = 1; i < count; ++i) {
      std::string_view const word = words[i];
      if (word.substr(0, 2) != "--") {
        throw usage_error(quote(word) + ": is no flag; flags are --name value, see --help");
      }
      std::size_t const equals = word.find('=');
      std::string_view const name =
          word.substr(2, equals == std::string_view::npos ? std::string_view::npos : equals - 2);
      flag& f = find_known(name);
      if (f.given) {
        throw usage_error("--" + f.name + ": is given twice; keep one");
      }
      if (f.value.empty()) {
        if (equals != std::string_view::npos) {
          throw usage_error("--" + f.name + ": takes no value; write --" + f.name);
        }
        f.given = "";
      } else if (equals != std::string_view::npos) {
        f.given = std::string(word.substr(equals + 1));
      } else if (i + 1 < count && std::string_view(words[i + 1]).substr(0, 2) != "--") {
        f.given = words[++i];
      } else {
        throw usage_error("--" + f.name + ": the value is missing; write --" + f.name + " " +
                          f.value);
      }
    }
    return *this;
  }

  bool given(std::string_view name) const { return at(name).given.has_value(); }
  std::optional<std::string> const& text(std::string_view name) const { return at(name).given; }

  std::uint64_t integer(std::string_view name,
                        std::uint64_t fallback,
                        std::uint64_t least,
                        std::uint64_t most) const {
    flag const& f = at(name);
    if (!f.given) {
      return fallback;
    }
    std::uint64_t out = 0;
    char const* const end = f.given->data() + f.given->size();
    auto const read = std::from_chars(f.given->data(), end, out);
    if (read.ec != std::errc{} || read.ptr != end || out < least || out > most) {
      refuse(f, "must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return out;
  }

  /// In [least, most]; `range` says so in words.
  double number(
      std::string_view name, double fallback, double least, double most, char const* range) const {
    flag const& f = at(name);
    if (!f.given) {
      return fallback;
    }
    double out = 0;
    char const* const end = f.given->data() + f.given->size();
    auto const read = std::from_chars(f.given->data(), end, out);
    if (read.ec != std::errc{} || read.ptr != end || !(out >= least) || !(out <= most)) {
      refuse(f, std::string("must be a number ") + range);
    }
    return out;
  }

  std::uint64_t size(std::string_view name, std::uint64_t fallback) const {
    flag const& f = at(name);
    if (!f.given) {
      return fallback;
    }
    auto const read = protrain::plan::parse_size(*f.given);
    if (!read) {
      refuse(f, read.failure().reason);
    }
    return read->value;
  }

  /// One of `choices`.
  std::string choice(std::string_view name,
                     std::string const& fallback,
                     std::vector<std::string_view> const& choices) const {
    flag const& f = at(name);
    std::string all;
    for (std::string_view const c : choices) {
      if (f.given.value_or(fallback) == c) {
        return std::string(c);
      }
      (all += all.empty() ? "" : ", ") += c;
    }
    refuse(f, "must be one of " + all);
  }

  /// Throws usage_error about a flag that was given.
  [[noreturn]] void refuse(std::string_view name, std::string const& cure) const {
    refuse(at(name), cure);
  }

  std::string help() const {
    std::string out = usage_ + "\n\nFlags (--name value or --name=value):\n";
    for (flag const& f : known_) {
      std::string line = "  --" + f.name + (f.value.empty() ? "" : " " + f.value);
      line.resize(std::max<std::size_t>(line.size() + 2, 27), ' ');
      out += line + f.help + (f.fallback.empty() ? "" : " [" + f.fallback + "]") + "\n";
    }
    return out;
  }

 private:
  struct flag {
    std::string name;
    std::string value;  // what the help calls it; empty for a switch
    std::string fallback;
    std::string help;
    std::optional<std::string> given;
  };

  [[noreturn]] static void refuse(flag const& f, std::string const& cure) {
    throw usage_error("--" + f.name + " " + quote(f.given.value_or("")) + ": " + cure);
  }

  flag& find_known(std::string_view name) {
    for (flag& f : known_) {
      if (f.name == name) {
        return f;
      }
    }
    std::string all;
    for (flag const& f : known_) {
      (all += all.empty() ? "--" : ", --") += f.name;
    }
    throw usage_error("--" + quote(name).substr(1, quote(name).size() - 2) +
                      ": is unknown; known are " + all);
  }
  flag const& at(std::string_view name) const {
    for (flag const& f : known_) {
      if (f.name == name) {
        return f;
      }
    }
    throw std::logic_error("a flag that was not declared: " + std::string(name));
  }

  std::string usage_;
  std::vector<flag> known_;
};

}  // namespace cli
