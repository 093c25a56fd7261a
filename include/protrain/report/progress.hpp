// SPDX-License-Identifier: Apache-2.0
#pragma once
// A line that is written over and over on a terminal, and never into a pipe or a file.

#include "protrain/core/config.hpp"

#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace protrain::inline v0::report {

/// Writes to `stream`, which must outlive it. Other output goes between `clear` and the next
/// `show`.
class progress {
 public:
  explicit progress(std::FILE* stream) : progress(stream, ::isatty(::fileno(stream)) == 1) {}
  /// For tests: as if `stream` were a terminal, or not.
  progress(std::FILE* stream, bool terminal) : stream_(stream), terminal_(terminal) {}
  progress(progress const&) = delete;
  progress& operator=(progress const&) = delete;
  ~progress() { clear(); }

  bool terminal() const noexcept { return terminal_; }

  void show(std::string_view line) {
    if (terminal_) {
      std::fprintf(stream_, "\r%.*s\x1b[K", static_cast<int>(line.size()), line.data());
      std::fflush(stream_);
      shown_ = true;
    }
  }

  void clear() {
    if (shown_) {
      std::fputs("\r\x1b[K", stream_);
      std::fflush(stream_);
      shown_ = false;
    }
  }

 private:
  std::FILE* stream_;
  bool terminal_;
  bool shown_ = false;
};

}  // namespace protrain::inline v0::report
