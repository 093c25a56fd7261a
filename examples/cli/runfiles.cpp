// SPDX-License-Identifier: Apache-2.0
// Runfiles by Bazel's own library.

#include "examples/cli/runfiles.hpp"

#include "examples/cli/flags.hpp"
#include "tools/cpp/runfiles/runfiles.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace cli {

using bazel::tools::cpp::runfiles::Runfiles;

struct runfiles::state {
  std::unique_ptr<Runfiles> files;
};

runfiles::runfiles(char const* program) : state_(std::make_unique<state>()) {
  // A program found through PATH or a link has another argv[0] than its place.
  std::error_code none;
  std::string const place = std::filesystem::read_symlink("/proc/self/exe", none).string();
  for (std::string const& name : {place, std::string(program)}) {
    std::string ignored;
    state_->files.reset(Runfiles::Create(name, &ignored));
    if (state_->files) {
      return;
    }
  }
}
runfiles::~runfiles() = default;

std::string runfiles::find(std::string const& path) const {
  std::string const found = state_->files ? state_->files->Rlocation("protrain/" + path) : "";
  std::error_code none;
  if (found.empty() || !std::filesystem::exists(found, none)) {
    throw usage_error(path +
                      ": is not beside this program; start it with bazel run or from bazel-bin");
  }
  return std::filesystem::absolute(found).string();
}

void enter_working_folder() {
  // Before any thread.
  if (char const* const folder =
          std::getenv("BUILD_WORKING_DIRECTORY")) {  // NOLINT(concurrency-mt-unsafe)
    std::error_code none;  // a folder that is gone: the one at hand must do
    std::filesystem::current_path(folder, none);
  }
}

}  // namespace cli
