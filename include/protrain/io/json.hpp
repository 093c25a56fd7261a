// SPDX-License-Identifier: Apache-2.0
#pragma once
// JSON with bounded depth, no duplicate names and checked numbers: every failure names the file and
// the path to the field.

#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"

#include <nlohmann/json.hpp>

#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace protrain::inline v0::io {

/// Objects keep the order in which their members were added.
using json = nlohmann::ordered_json;

/// Deeper nesting than any format here needs is refused.
inline constexpr int deepest_json = 64;

/// A value inside a file, and where it is. Refers to the document, which must outlive it.
class json_field {
 public:
  json_field(json const& value, std::string const& file, std::string path)
      : value_(&value), file_(&file), path_(std::move(path)) {}

  [[noreturn]] void fail(std::string const& cure) const {
    throw input_error(*file_, path_, value_->dump(-1, ' ', true), cure);
  }

  bool is_null() const { return value_->is_null(); }
  std::string const& path() const noexcept { return path_; }
  std::string const& file() const noexcept { return *file_; }

  /// A member that must be there. The field itself must be an object.
  json_field at(char const* name) const {
    json const& object = as_object();
    auto const found = object.find(name);
    if (found == object.end()) {
      throw input_error(*file_, below(name), "", "is missing; add it");
    }
    return {*found, *file_, below(name)};
  }

  /// Whether there is such a member, null or not.
  bool has(char const* name) const { return as_object().contains(name); }

  /// A member, unless it is missing or null.
  std::optional<json_field> find(char const* name) const {
    json const& object = as_object();
    auto const found = object.find(name);
    if (found == object.end() || found->is_null()) {
      return {};
    }
    return json_field{*found, *file_, below(name)};
  }

  /// Refuses members with other names: a misspelt one must not pass for a missing one.
  void allow_only(std::initializer_list<std::string_view> names) const {
    allow_only(std::span(names.begin(), names.size()));
  }
  void allow_only(std::span<std::string_view const> names) const {
    for (auto const& member : as_object().items()) {
      bool known = false;
      for (std::string_view const name : names) {
        known = known || name == member.key();
      }
      if (!known) {
        std::string all;
        for (std::string_view const name : names) {
          (all += all.empty() ? "" : ", ") += name;
        }
        throw input_error(*file_, below(member.key()), "", "is unknown here; known are " + all);
      }
    }
  }

  /// The elements of an array of at most `most`.
  std::vector<json_field> items(std::size_t most) const {
    if (!value_->is_array() || value_->size() > most) {
      fail("must be a list of at most " + std::to_string(most) + " elements");
    }
    std::vector<json_field> out;
    out.reserve(value_->size());
    for (std::size_t i = 0; i < value_->size(); ++i) {
      out.emplace_back((*value_)[i], *file_, path_ + "[" + std::to_string(i) + "]");
    }
    return out;
  }

  std::uint64_t integer(std::uint64_t least, std::uint64_t most) const {
    bool const fits = value_->is_number_unsigned() && value_->get<std::uint64_t>() >= least &&
                      value_->get<std::uint64_t>() <= most;
    if (!fits) {
      fail("must be an integer from " + std::to_string(least) + " to " + std::to_string(most));
    }
    return value_->get<std::uint64_t>();
  }

  /// In [least, below).
  double number(double least, double below) const {
    if (!value_->is_number() || !(value_->get<double>() >= least) ||
        !(value_->get<double>() < below)) {
      fail("must be a number, at least " + shortest(least) + " and below " + shortest(below));
    }
    return value_->get<double>();
  }

  bool boolean() const {
    if (!value_->is_boolean()) {
      fail("must be true or false");
    }
    return value_->get<bool>();
  }

  std::string string(std::size_t most = 4096) const {
    if (!value_->is_string() || value_->get_ref<std::string const&>().size() > most) {
      fail("must be a string of at most " + std::to_string(most) + " bytes");
    }
    return value_->get<std::string>();
  }

  /// The position of a string among `names`.
  std::size_t choice(std::initializer_list<std::string_view> names) const {
    std::string all;
    std::size_t i = 0;
    for (std::string_view const name : names) {
      if (value_->is_string() && value_->get_ref<std::string const&>() == name) {
        return i;
      }
      ++i;
      (all += all.empty() ? "" : ", ") += name;
    }
    fail("must be one of " + all);
  }

  /// 64 bits as 16 hex digits: a JSON number would lose some of them in other programs.
  std::uint64_t hex() const {
    std::uint64_t out = 0;
    if (value_->is_string()) {
      auto const& s = value_->get_ref<std::string const&>();
      auto const* const end = s.data() + s.size();
      auto const read = std::from_chars(s.data(), end, out, 16);
      if (s.size() == 16 && read.ec == std::errc{} && read.ptr == end) {
        return out;
      }
    }
    fail("must be 16 hex digits");
  }

 private:
  json const& as_object() const {
    if (!value_->is_object()) {
      fail("must be an object");
    }
    return *value_;
  }
  std::string below(std::string_view name) const {
    return path_.empty() ? std::string(name) : path_ + "." + std::string(name);
  }
  static std::string shortest(double x) {
    char digits[32] = {};
    auto* const end = std::to_chars(std::begin(digits), std::end(digits), x).ptr;
    return {digits, end};
  }

  json const* value_;
  std::string const* file_;
  std::string path_;
};

/// A parsed file.
class json_document {
 public:
  /// Throws input_error: not JSON, nested too deep, a name twice, a number out of range.
  json_document(std::string file, std::string_view contents) : file_(std::move(file)) {
    std::vector<std::set<std::string>> names;
    auto const watch = [&](int depth, json::parse_event_t event, json& parsed) {
      if (depth >= deepest_json) {
        throw input_error(
            file_, "", "", "is nested deeper than " + std::to_string(deepest_json) + " levels");
      }
      if (event == json::parse_event_t::object_start) {
        names.emplace_back();
      } else if (event == json::parse_event_t::object_end) {
        names.pop_back();
      } else if (event == json::parse_event_t::key &&
                 !names.back().insert(parsed.get_ref<std::string const&>()).second) {
        throw input_error(
            file_, parsed.get<std::string>(), "", "is given twice in one object; keep one");
      }
      return true;
    };
    try {
      root_ = json::parse(contents.begin(), contents.end(), watch);
    } catch (json::exception const& e) {
      throw input_error(file_, "", "", std::string("is not JSON: ") + e.what());
    }
  }
  json_document(json_document const&) = delete;
  json_document& operator=(json_document const&) = delete;
  ~json_document() = default;

  json_field top() const { return {root_, file_, ""}; }

 private:
  std::string file_;
  json root_;
};

/// The same, from disk.
inline json_document read_json(std::string const& path) { return {path, read_file(path)}; }

/// Refuses another kind of file and versions that this library doesn't know.
inline void check_head(json_field const& top, char const* kind) {
  json_field const what = top.at("protrain");
  if (what.string() != kind) {
    what.fail(std::string("must be \"") + kind + "\"");
  }
  top.at("version").integer(1, 1);
}

inline std::string hex16(std::uint64_t bits) {
  std::string out(16, '0');
  for (std::size_t i = 16; i > 0; --i, bits >>= 4U) {
    out[i - 1] = "0123456789abcdef"[bits & 15U];
  }
  return out;
}

}  // namespace protrain::inline v0::io
