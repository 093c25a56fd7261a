// SPDX-License-Identifier: Apache-2.0
#pragma once
// What reading throws: which file, which field, what it holds, and what would be right.

#include "protrain/core/config.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace protrain::inline v0::io {

/// Text from outside as it may appear in a message: on one line, at most `most` characters.
inline std::string printable(std::string_view s, std::size_t most = 80) {
  std::string out;
  for (char const c : s.substr(0, most)) {
    auto const u = static_cast<unsigned char>(c);
    out += u < 0x20 || u == 0x7F ? '?' : c;
  }
  if (s.size() > most) {
    out += "...";
  }
  return out;
}

/// Bad input. `what()` is one line, "file: field is value: cure"; parts that don't apply are empty.
class input_error : public std::runtime_error {
 public:
  input_error(std::string file, std::string field, std::string value, std::string cure)
      : std::runtime_error(line(file, field, value, cure)),
        file_(std::move(file)),
        field_(std::move(field)),
        value_(std::move(value)),
        cure_(std::move(cure)) {}

  std::string const& file() const noexcept { return file_; }
  std::string const& field() const noexcept { return field_; }
  std::string const& value() const noexcept { return value_; }
  std::string const& cure() const noexcept { return cure_; }

 private:
  static std::string line(std::string_view file,
                          std::string_view field,
                          std::string_view value,
                          std::string_view cure) {
    std::string out = printable(file, 400);
    if (!field.empty()) {
      out += ": " + printable(field);
    }
    if (!value.empty()) {
      out += (field.empty() ? ": " : " is ") + printable(value);
    }
    return out + ": " + printable(cure, 400);
  }

  std::string file_;
  std::string field_;
  std::string value_;
  std::string cure_;
};

}  // namespace protrain::inline v0::io
