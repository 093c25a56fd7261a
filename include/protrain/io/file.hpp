// SPDX-License-Identifier: Apache-2.0
#pragma once
// Whole files in and out. Failures name the file; a write that fails leaves what was there.

#include "protrain/io/input_error.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace protrain::inline v0::io {

/// A file that could not be written: not the input's fault.
class write_error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

struct close_file {
  void operator()(std::FILE* f) const noexcept {
    std::fclose(f);  // NOLINT(cppcoreguidelines-owning-memory)
  }
};
using file_handle = std::unique_ptr<std::FILE, close_file>;

inline bool is_directory(std::string const& path) {
  struct ::stat facts{};
  return ::stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

inline std::string reason(int code) { return std::generic_category().message(code); }

}  // namespace detail

/// The largest file that is read whole.
inline constexpr std::uint64_t largest_file = std::uint64_t{1} << 30U;

/// All bytes of a file. Throws input_error when it is missing, a directory, unreadable, or larger
/// than `most`.
inline std::string read_file(std::string const& path, std::uint64_t most = largest_file) {
  if (detail::is_directory(path)) {
    throw input_error(path, "", "", "is a directory; name a file");
  }
  detail::file_handle const file(std::fopen(path.c_str(), "rb"));
  if (!file) {
    throw input_error(path, "", "", "can't be opened: " + detail::reason(errno));
  }
  std::string out;
  std::size_t room = std::size_t{1} << 16U;
  for (bool more = true; more;) {
    std::size_t const had = out.size();
    out.resize(had + room);
    std::size_t const got = std::fread(out.data() + had, 1, room, file.get());
    out.resize(had + got);
    if (out.size() > most) {
      throw input_error(
          path, "", "", "is larger than " + std::to_string(most) + " bytes; name a smaller file");
    }
    more = got == room;
    room = std::min(room * 2, std::size_t{1} << 26U);
  }
  if (std::ferror(file.get()) != 0) {
    throw input_error(path, "", "", "can't be read: " + detail::reason(errno));
  }
  return out;
}

/// Replaces a file in one move: readers see the old contents or the new ones, never a part.
inline void write_file(std::string const& path, std::string_view contents) {
  std::string const part = path + ".part";
  {
    detail::file_handle const file(std::fopen(part.c_str(), "wb"));
    if (!file) {
      throw write_error(path + ": can't be written: " + detail::reason(errno));
    }
    bool const written =
        std::fwrite(contents.data(), 1, contents.size(), file.get()) == contents.size();
    if (!written || std::fflush(file.get()) != 0) {
      int const code = errno;
      std::remove(part.c_str());
      throw write_error(path + ": can't be written: " + detail::reason(code));
    }
  }
  if (std::rename(part.c_str(), path.c_str()) != 0) {
    int const code = errno;
    std::remove(part.c_str());
    throw write_error(path + ": can't be replaced: " + detail::reason(code));
  }
}

}  // namespace protrain::inline v0::io
