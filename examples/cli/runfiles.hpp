// SPDX-License-Identifier: Apache-2.0
#pragma once
// Files that Bazel lays beside a program, and the folder that relative paths start from.

#include <memory>
#include <string>

namespace cli {

/// Finds data of this repository for a program started by `bazel run`, from bazel-bin, or by a test.
class runfiles {
 public:
  /// `program` is argv[0].
  explicit runfiles(char const* program);
  ~runfiles();
  runfiles(runfiles const&) = delete;
  runfiles& operator=(runfiles const&) = delete;

  /// The file at `path` below the repository's root. Throws usage_error if it isn't there.
  std::string find(std::string const& path) const;

 private:
  struct state;
  std::unique_ptr<state> state_;
};

/// Under `bazel run` a program starts elsewhere; paths are meant from where the user is.
void enter_working_folder();

}  // namespace cli
