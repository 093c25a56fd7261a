// SPDX-License-Identifier: Apache-2.0
// Seconds and memory that a compiler takes for a file of one include: CXX, or c++, on the headers
// below include/. Baseline: a header of the standard library.

#include <benchmark/benchmark.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <string>
#include <vector>

extern char** environ;

namespace {

/// What an include may cost: a file of a user's is then compiled while one waits.
constexpr double limit_seconds = 30;
constexpr double limit_mib = 2048;

struct cost {
  bool ok = false;
  double seconds = 0;  // of processor time
  double mib = 0;      // most at once
};

cost compile(std::string const& header) {
  std::array<int, 2> text{};
  if (::pipe(text.data()) != 0) {
    return {};
  }
  char const* const chosen = std::getenv("CXX");
  std::vector<std::string> words{chosen != nullptr ? chosen : "c++",
                                 "-std=c++20",
                                 "-O2",
                                 "-Iinclude",
                                 "-xc++",
                                 "-c",
                                 "-",
                                 "-o",
                                 "/dev/null"};
  std::vector<char*> arguments;
  for (std::string& word : words) {
    arguments.push_back(word.data());
  }
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t files{};
  ::posix_spawn_file_actions_init(&files);
  ::posix_spawn_file_actions_adddup2(&files, text[0], STDIN_FILENO);
  ::posix_spawn_file_actions_addclose(&files, text[1]);
  pid_t child = 0;
  int const failed =
      ::posix_spawnp(&child, arguments[0], &files, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&files);
  ::close(text[0]);
  std::string const source = "#include <" + header + ">\n";
  bool const written =
      ::write(text[1], source.data(), source.size()) == static_cast<ssize_t>(source.size());
  ::close(text[1]);
  int status = 1;
  rusage used{};
  if (failed != 0 || ::wait4(child, &status, 0, &used) != child) {
    return {};
  }
  auto const seconds = [](timeval const& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return {.ok = written && status == 0,
          .seconds = seconds(used.ru_utime) + seconds(used.ru_stime),
          .mib = static_cast<double>(used.ru_maxrss) / 1024};
}

void include(benchmark::State& state, char const* header) {
  for (auto _ : state) {
    cost const c = compile(header);
    if (!c.ok) {
      state.SkipWithError("the compiler refused the header, or there is none; run it at the root");
      return;
    }
    state.SetIterationTime(c.seconds);
    state.counters["MiB"] = c.mib;
    state.counters["of_limit"] = c.seconds / limit_seconds;
    state.counters["of_memory_limit"] = c.mib / limit_mib;
  }
}

BENCHMARK_CAPTURE(include, protrain, "protrain/protrain.hpp")
    ->UseManualTime()
    ->Unit(benchmark::kSecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(include, planning, "protrain/planning.hpp")
    ->UseManualTime()
    ->Unit(benchmark::kSecond)
    ->Iterations(1);
BENCHMARK_CAPTURE(include, baseline, "algorithm")
    ->UseManualTime()
    ->Unit(benchmark::kSecond)
    ->Iterations(1);

}  // namespace

BENCHMARK_MAIN();
