// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that vanish, and the message of a refused input.

#include "protrain/io/file.hpp"
#include "protrain/io/input_error.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <string_view>

namespace protrain_test {

/// A folder of its own, removed at the end.
class scratch_folder {
 public:
  scratch_folder() {
    char name[] = "/tmp/protrain_io_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

/// What `read` throws as input_error; fails the test if nothing.
template <class F>
protrain::io::input_error refused(F&& read) {
  try {
    read();
  } catch (protrain::io::input_error const& e) {
    return e;
  }
  FAIL("nothing was refused");
  return {"", "", "", ""};
}

inline bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

inline bool one_line(std::string_view text) {
  return !text.empty() && text.find('\n') == std::string_view::npos;
}

/// `text` with the first `from` replaced, which must be there.
inline std::string with(std::string text, std::string_view from, std::string_view to) {
  auto const at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace protrain_test
