// SPDX-License-Identifier: Apache-2.0
// Processors that a process may use: cgroups of both versions below a made-up root, whatever is
// wrong with their files, and the real affinity mask.

#include "protrain/device/processors.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

#if defined(__linux__)
#include <sched.h>
#endif

namespace processors_test {

namespace {

using namespace protrain;  // NOLINT(google-build-using-namespace): a test of one header

/// A folder that plays /, gone with the object.
class fake_root {
 public:
  fake_root() {
    std::string name = (std::filesystem::temp_directory_path() / "protrain_root_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  fake_root(fake_root const&) = delete;
  fake_root& operator=(fake_root const&) = delete;
  ~fake_root() {
    std::error_code none;
    std::filesystem::remove_all(path_, none);
  }

  fake_root& file(std::string const& name, std::string const& contents) {
    std::filesystem::create_directories(std::filesystem::path(path_ + name).parent_path());
    std::FILE* const f = std::fopen((path_ + name).c_str(), "w");
    REQUIRE(f != nullptr);
    REQUIRE(std::fwrite(contents.data(), 1, contents.size(), f) == contents.size());
    REQUIRE(std::fclose(f) == 0);
    return *this;
  }
  fake_root& own(std::string const& lines) { return file("/proc/self/cgroup", lines); }
  std::uint32_t quota() const { return device::cgroup_quota(path_); }
  std::string const& path() const { return path_; }

 private:
  std::string path_;
};

/// Of a process in the cgroup /job of version 2 whose cpu.max holds `line`.
std::uint32_t quota_of(std::string const& line) {
  fake_root root;
  return root.own("0::/job\n").file("/sys/fs/cgroup/job/cpu.max", line).quota();
}

TEST_CASE("processors: cgroup version 2, whole processors, rounded down, never 0") {
  CHECK(quota_of("200000 100000\n") == 2);
  CHECK(quota_of("1600000 100000\n") == 16);
  CHECK(quota_of("150000 100000\n") == 1);
  CHECK(quota_of("199999 100000\n") == 1);
  CHECK(quota_of("50000 100000\n") == 1);
  CHECK(quota_of("1 1000000\n") == 1);
  CHECK(quota_of("30000 10000") == 3);
  CHECK(quota_of("18446744073709551615 1\n") == 1U << 20U);
}

TEST_CASE("processors: what is no quota is no limit") {
  for (std::string const line : {"max 100000\n",
                                 "",
                                 "\n",
                                 "max",
                                 "200000",
                                 "200000\n",
                                 "x 100000\n",
                                 "200000 x\n",
                                 "200000 0\n",
                                 "0 100000\n",
                                 "-1 100000\n",
                                 "200000 100000 3\n",
                                 "200000  100000\n",
                                 "2e5 1e5\n",
                                 "99999999999999999999 100000\n"}) {
    CAPTURE(line);
    CHECK(quota_of(line) == 0);
  }
  fake_root nothing;
  CHECK(nothing.quota() == 0);
  CHECK(nothing.own("").quota() == 0);
  CHECK(nothing.own("gibberish\n::\n0:\n\n0::relative\n7:cpu\n").quota() == 0);
  std::filesystem::create_directories(nothing.path() + "/sys/fs/cgroup/cpu.max");
  CHECK(nothing.own("0::/\n").quota() == 0);
}

TEST_CASE("processors: the tightest of a cgroup and all above it counts") {
  for (int tight = 0; tight < 4; ++tight) {
    fake_root root;
    root.own("1:name=systemd:/elsewhere\n0::/a/b/c\n");
    std::string const folders[] = {"", "/a", "/a/b", "/a/b/c"};
    for (int i = 0; i < 4; ++i) {
      root.file("/sys/fs/cgroup" + folders[i] + "/cpu.max",
                i == tight ? "300000 100000\n" : "800000 100000\n");
    }
    CHECK(root.quota() == 3);
  }
  fake_root sparse;
  sparse.own("0::/a/b/c\n").file("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
  sparse.file("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
  CHECK(sparse.quota() == 4);
  sparse.file("/sys/fs/cgroup/sibling/cpu.max", "100000 100000\n");
  CHECK(sparse.quota() == 4);
}

TEST_CASE("processors: names with colons, and paths out of the tree") {
  fake_root root;
  root.own("0::/a:b\n").file("/sys/fs/cgroup/a:b/cpu.max", "500000 100000\n");
  CHECK(root.quota() == 5);
  root.own("0::/../other\n").file("/sys/fs/cgroup/cpu.max", "600000 100000\n");
  root.file("/sys/fs/other/cpu.max", "100000 100000\n");
  CHECK(root.quota() == 6);
}

TEST_CASE("processors: cgroup version 1") {
  fake_root root;
  root.own("5:cpuset:/set\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/s\n");
  std::string const mount = "/sys/fs/cgroup/cpu,cpuacct";
  CHECK(root.quota() == 0);
  // A container without a namespace of its own: only the mount's top is visible.
  root.file(mount + "/cpu.cfs_quota_us", "700000\n").file(mount + "/cpu.cfs_period_us", "100000\n");
  CHECK(root.quota() == 7);
  root.file(mount + "/docker/cpu.cfs_quota_us", "-1\n");
  root.file(mount + "/docker/cpu.cfs_period_us", "100000\n");
  CHECK(root.quota() == 7);
  root.file(mount + "/docker/x/cpu.cfs_quota_us", "250000\n");
  CHECK(root.quota() == 7);  // a quota without its period says nothing
  root.file(mount + "/docker/x/cpu.cfs_period_us", "100000\n");
  CHECK(root.quota() == 2);
  // The controllers' usual short name.
  fake_root other;
  other.own("2:cpu:/\n").file("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "300000\n");
  other.file("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  CHECK(other.quota() == 3);
  other.own("2:cpuset,cpuacct:/\n");
  CHECK(other.quota() == 0);
}

TEST_CASE("processors: both versions at once, and the tighter one counts") {
  fake_root root;
  root.own("3:cpu:/job\n0::/job\n");
  root.file("/sys/fs/cgroup/job/cpu.max", "400000 100000\n");
  root.file("/sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  root.file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "900000\n");
  CHECK(root.quota() == 4);
  root.file("/sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "200000\n");
  CHECK(root.quota() == 2);
}

TEST_CASE("processors: threads = max(1, min(affinity, quota) / local ranks)") {
  using device::thread_share;
  CHECK(thread_share({.affinity = 16, .quota = 2}, 8) == 1);
  CHECK(thread_share({.affinity = 2}, 8) == 1);
  CHECK(thread_share({.affinity = 16}, 1) == 16);
  CHECK(thread_share({.affinity = 16}, 4) == 4);
  CHECK(thread_share({.affinity = 16, .quota = 6}, 4) == 1);
  CHECK(thread_share({.affinity = 16, .quota = 64}, 3) == 5);
  CHECK(thread_share({.affinity = 4, .quota = 0}, 0) == 4);
  CHECK(thread_share({.affinity = 0, .quota = 0}, 1) == 1);
}

TEST_CASE("processors: OMP_NUM_THREADS=1, which launchers set, starves nobody") {
  fake_root root;
  root.own("0::/job\n").file("/sys/fs/cgroup/job/cpu.max", "200000 100000\n");
  auto const before = device::processors_here(root.path());
  CHECK(before.quota == 2);
  char const* const old = std::getenv("OMP_NUM_THREADS");
  std::string const kept = old == nullptr ? "" : old;
  ::setenv("OMP_NUM_THREADS", "1", 1);
  auto const after = device::processors_here(root.path());
  old == nullptr ? ::unsetenv("OMP_NUM_THREADS") : ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  CHECK(after == before);
}

#if defined(__linux__)
TEST_CASE("processors: affinity is the calling thread's mask") {
  cpu_set_t all;
  REQUIRE(::sched_getaffinity(0, sizeof all, &all) == 0);
  CHECK(device::affinity() == static_cast<std::uint32_t>(CPU_COUNT(&all)));
  std::uint32_t seen = 0;
  std::thread([&] {
    cpu_set_t one;
    CPU_ZERO(&one);
    for (std::size_t c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++c) {
      if (CPU_ISSET(c, &all)) {
        CPU_SET(c, &one);
      }
    }
    seen = ::sched_setaffinity(0, sizeof one, &one) == 0 ? device::affinity() : 0;
  }).join();
  CHECK(seen == 1);
}
#endif

}  // namespace

}  // namespace processors_test
