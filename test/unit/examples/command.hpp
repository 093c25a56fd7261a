// SPDX-License-Identifier: Apache-2.0
#pragma once
// Runs a program as a user would, and keeps what it says.

#include "protrain/io/file.hpp"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace protrain_test {

/// A folder of its own, removed at the end.
class scratch_folder {
 public:
  scratch_folder() {
    char name[] = "/tmp/protrain_cli_XXXXXX";
    REQUIRE(::mkdtemp(name) != nullptr);
    path_ = name;
  }
  scratch_folder(scratch_folder const&) = delete;
  scratch_folder& operator=(scratch_folder const&) = delete;
  ~scratch_folder() { std::filesystem::remove_all(path_); }

  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }
  std::string const& path() const { return path_; }

 private:
  std::string path_;
};

/// A program that was started; `wait` ends it.
class command {
 public:
  /// `program` is relative to the workspace, `words` its arguments, `folder` where it starts.
  command(std::string const& program,
          std::vector<std::string> const& words,
          std::string const& folder = ".")
      : binary_(std::filesystem::absolute(program).string()) {
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      start(words, folder);
    }
  }
  command(command const&) = delete;
  command& operator=(command const&) = delete;
  ~command() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, nullptr, 0);
    }
  }

  void interrupt() const { ::kill(pid_, SIGINT); }

  command& wait() {
    int status = 0;
    REQUIRE(::waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    code = WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    out = protrain::io::read_file(files_ / "out");
    err = protrain::io::read_file(files_ / "err");
    return *this;
  }

  int code = -1;  ///< exit code, or minus the signal
  std::string out;
  std::string err;

  bool says(std::string_view part) const { return out.find(part) != std::string::npos; }
  bool complains(std::string_view part) const { return err.find(part) != std::string::npos; }
  /// Exactly one line on the error stream.
  bool one_line() const {
    return std::count(err.begin(), err.end(), '\n') == 1 && err.back() == '\n';
  }
  /// The rest of the line that starts with `head`.
  std::string line(std::string const& head) const {
    std::string const text = "\n" + out;
    auto const at = text.find("\n" + head);
    return at == std::string::npos
               ? ""
               : text.substr(at + 1 + head.size(), text.find('\n', at + 1) - at - 1 - head.size());
  }

 private:
  [[noreturn]] void start(std::vector<std::string> const& words, std::string const& folder) const {
    std::vector<char*> pointers{const_cast<char*>(binary_.c_str())};
    for (std::string const& w : words) {
      pointers.push_back(const_cast<char*>(w.c_str()));
    }
    pointers.push_back(nullptr);
    int const flags = O_WRONLY | O_CREAT | O_TRUNC;
    ::dup2(::open((files_ / "out").c_str(), flags, 0600), 1);
    ::dup2(::open((files_ / "err").c_str(), flags, 0600), 2);
    if (::chdir(folder.c_str()) == 0) {
      ::execv(binary_.c_str(), pointers.data());
    }
    std::_Exit(127);
  }

  std::string binary_;
  scratch_folder files_;
  pid_t pid_ = -1;
};

/// Words that are parted by spaces.
inline std::vector<std::string> split(std::string const& words) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < words.size();) {
    std::size_t const end = std::min(words.find(' ', at), words.size());
    if (end > at) {
      out.push_back(words.substr(at, end - at));
    }
    at = end + 1;
  }
  return out;
}

/// The lines of a file that ends with a line's end.
inline std::vector<std::string> lines_of(std::string const& path) {
  std::string const text = protrain::io::read_file(path);
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t const end = text.find('\n', at);
    REQUIRE(end != std::string::npos);
    out.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return out;
}

}  // namespace protrain_test
