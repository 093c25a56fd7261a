// SPDX-License-Identifier: Apache-2.0
#pragma once
// How many processors this process may use: its affinity mask and the quotas of its cgroups.
// OMP_NUM_THREADS is not asked: launchers set it to 1 for every program.

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace protrain::inline v0::device {

/// What the system grants, each in whole processors.
struct processors {
  std::uint32_t affinity = 1;  ///< in the mask of the thread that asked
  std::uint32_t quota = 0;     ///< worth of time, by the tightest cgroup; 0 means no limit

  constexpr std::uint32_t usable() const noexcept {
    return std::max(1U, quota == 0 ? affinity : std::min(affinity, quota));
  }
  bool operator==(processors const&) const = default;
};

/// A fair share for each of the ranks that have the same processors: at least one thread.
constexpr std::uint32_t thread_share(processors const& all, std::uint32_t local_ranks) noexcept {
  return std::max(1U, all.usable() / std::max(1U, local_ranks));
}

namespace detail {

struct close_file {
  void operator()(std::FILE* f) const noexcept {
    std::fclose(f);  // NOLINT(cppcoreguidelines-owning-memory)
  }
};

/// The beginning of a file of /proc or /sys; empty if it can't be read.
inline std::string beginning_of(std::string const& path) {
  std::string out;
  std::unique_ptr<std::FILE, close_file> const file(std::fopen(path.c_str(), "re"));
  if (file != nullptr) {
    out.resize(std::size_t{1} << 16U);
    out.resize(std::fread(out.data(), 1, out.size(), file.get()));
  }
  return out;
}

/// Takes what is before the first `end` off the front of `rest`, and `end` with it.
inline std::string_view take_until(std::string_view& rest, char end) {
  std::size_t const at = std::min(rest.find(end), rest.size());
  std::string_view const head = rest.substr(0, at);
  rest.remove_prefix(std::min(at + 1, rest.size()));
  return head;
}

/// A positive decimal number and nothing else.
inline std::optional<std::uint64_t> positive(std::string_view word) {
  std::uint64_t value = 0;
  char const* const begin = word.data();
  char const* const end = begin + word.size();
  auto const [at, wrong] = std::from_chars(begin, end, value);
  return wrong == std::errc{} && at == end && value > 0 ? std::optional(value) : std::nullopt;
}

/// Whole processors in `quota` of every `period`, both in microseconds and as text; 0, no limit,
/// where they are no such numbers ("max", "-1", nothing, anything else). Rounded down, but never
/// to 0: who runs more threads than the quota pays for has all of them stopped for the rest of
/// each period, and the queues' own threads need some of it too.
inline std::uint32_t whole_processors(std::string_view quota, std::string_view period) {
  auto const q = positive(quota);
  auto const p = positive(period);
  constexpr std::uint64_t most = 1U << 20U;
  return q && p ? static_cast<std::uint32_t>(std::clamp<std::uint64_t>(*q / *p, 1, most)) : 0;
}

/// The smaller limit, of which 0 is none.
constexpr std::uint32_t tighter(std::uint32_t a, std::uint32_t b) noexcept {
  return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
}

inline std::uint32_t quota_v2(std::string const& folder) {
  std::string const text = beginning_of(folder + "/cpu.max");
  std::string_view line = text;
  line = take_until(line, '\n');
  std::string_view const quota = take_until(line, ' ');
  return whole_processors(quota, line);
}

inline std::uint32_t quota_v1(std::string const& folder) {
  std::string const quota = beginning_of(folder + "/cpu.cfs_quota_us");
  std::string const period = beginning_of(folder + "/cpu.cfs_period_us");
  std::string_view q = quota;
  std::string_view p = period;
  return whole_processors(take_until(q, '\n'), take_until(p, '\n'));
}

/// The tightest quota of the cgroup `path` below `mount` and of each one above it. A path that
/// leads out of the container's own tree says nothing: what is left is the tree's top.
inline std::uint32_t tightest(std::uint32_t (*quota)(std::string const&),
                              std::string const& mount,
                              std::string_view path) {
  if (!path.starts_with('/') || path.find("/..") != std::string_view::npos) {
    path = {};
  }
  std::uint32_t least = quota(mount);
  while (!path.empty()) {
    least = tighter(least, quota(mount + std::string(path)));
    path = path.substr(0, path.rfind('/'));
  }
  return least;
}

inline bool lists_cpu(std::string_view controllers) {
  while (!controllers.empty()) {
    if (take_until(controllers, ',') == "cpu") {
      return true;
    }
  }
  return false;
}

}  // namespace detail

/// Whole processors' worth of time that the process's cgroups grant, of either version and up to
/// the root; 0 means no limit, and so does whatever can't be read or understood. `root` is what
/// /proc and /sys lie below.
inline std::uint32_t cgroup_quota(std::string const& root = "") {
  std::string const own = detail::beginning_of(root + "/proc/self/cgroup");
  std::string const mounts = root + "/sys/fs/cgroup";
  std::uint32_t least = 0;
  for (std::string_view rest = own; !rest.empty();) {
    std::string_view path = detail::take_until(rest, '\n');
    std::string_view const hierarchy = detail::take_until(path, ':');
    std::string_view const controllers = detail::take_until(path, ':');
    if (hierarchy == "0" && controllers.empty()) {
      least = detail::tighter(least, detail::tightest(detail::quota_v2, mounts, path));
    } else if (detail::lists_cpu(controllers)) {
      for (std::string const& name : {std::string(controllers), std::string("cpu")}) {
        std::string mount = mounts;
        mount += "/";
        mount += name;
        least = detail::tighter(least, detail::tightest(detail::quota_v1, mount, path));
      }
    }
  }
  return least;
}

/// Processors in the calling thread's affinity mask; all of the machine's where there is none.
inline std::uint32_t affinity() {
#if defined(__linux__)
  // The kernel refuses masks shorter than its own, which has 1024 bits or more.
  for (std::size_t n = 1; n <= 1024; n *= 2) {
    std::vector<cpu_set_t> mask(n);
    if (::sched_getaffinity(0, n * sizeof(cpu_set_t), mask.data()) == 0) {
      return static_cast<std::uint32_t>(
          std::max(1, CPU_COUNT_S(n * sizeof(cpu_set_t), mask.data())));
    }
  }
#endif
  return std::max(1U, std::thread::hardware_concurrency());
}

inline processors processors_here(std::string const& root = "") {
  return {.affinity = affinity(), .quota = cgroup_quota(root)};
}

}  // namespace protrain::inline v0::device
