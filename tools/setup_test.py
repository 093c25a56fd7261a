#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of setup, on distributions made up for each case."""
import os
import shutil
import subprocess
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "setup")
USER = ["bazel", "g++", "git", "python3"]
CI = ["clang-19", "clang-format-19", "clang-tidy-19", "cmake", "debootstrap", "pkg-config"]
HEADERS = ["doctest/doctest.h", "benchmark/benchmark.h", "nlohmann/json.hpp", "eigen3/Eigen/Core"]
SHELL = ["cat", "grep", "id", "mktemp", "rm"]  # what the script itself calls


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = folder.name
        with open(PROGRAM) as text:
            script = text.read()
        for place in ("/etc/os-release", "/usr/include", "/usr/local/include"):
            self.assertIn(place, script)
        # The second include folder stays empty.
        script = script.replace("/usr/local/include", "/local").replace("/usr/include", "/headers")
        for place in ("/etc/os-release", "/local", "/headers"):
            script = script.replace(place, self.root + place)
        self.write("setup", script)
        # Scripts, not links: a case that replaces one must not write through it.
        for name in SHELL:
            self.programs([name], 'exec "%s" "$@"' % shutil.which(name))
        self.distribution("fedora", "42")

    def write(self, name, text=""):
        path = os.path.join(self.root, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)

    def distribution(self, name, version):
        self.write("etc/os-release", 'ID=%s\nVERSION_ID="%s"\nPRETTY_NAME="%s %s"\n' % (name, version, name, version))

    def programs(self, names, text="exit 0"):
        for name in names:
            self.write("path/" + name, "#!/bin/sh\n%s\n" % text)
            os.chmod(os.path.join(self.root, "path", name), 0o755)

    def headers(self, names=()):
        for name in names or HEADERS:
            self.write("headers/" + name)

    def run_it(self, *arguments):
        run = subprocess.run(["/bin/sh", os.path.join(self.root, "setup"), *arguments],
                             env={"PATH": os.path.join(self.root, "path"), "TMPDIR": self.root},
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return run.returncode, run.stdout, run.stderr

    def found(self, *arguments):
        self.assertEqual(self.run_it(*arguments), (
            0, "setup: fedora 42 is not Debian 12, but all that is needed was found\n", ""))

    def lacks(self, what, package, *arguments):
        code, out, err = self.run_it(*arguments)
        self.assertEqual((code, out), (1, ""))
        missing, packages = err.split("Install what corresponds")
        self.assertEqual(missing.split("\n")[1:-1], ["  " + each for each in what], err)
        self.assertIn("\n  %s\n" % package, packages)
        return packages

    def test_all_is_there(self):
        self.programs(USER)
        self.headers()
        self.found()

    def test_nothing_is_there(self):
        packages = self.lacks(USER + HEADERS, "bazel-bootstrap")
        self.assertNotIn("clang-19", packages)

    def test_each_header_counts(self):
        self.programs(USER)
        self.headers(HEADERS[1:])
        self.lacks(HEADERS[:1], "doctest-dev")

    def test_ci_needs_more(self):
        self.programs(USER)
        self.headers()
        self.lacks(CI, "debootstrap", "--ci")
        self.programs(CI)
        self.found("--ci")

    def test_each_program_counts(self):
        self.headers()
        for name in USER + CI:
            self.programs(USER + CI)
            os.remove(os.path.join(self.root, "path", name))
            self.lacks([name], "clang-tidy-19", "--ci")

    def test_clang_without_sanitizers_or_lld(self):
        self.programs(USER + CI)
        self.headers()
        self.programs(["clang-19"], "exit 1")
        self.lacks(["sanitizers-and-lld-of-clang-19"], "libclang-rt-19-dev", "--ci")
        self.found()

    def test_another_debian(self):
        self.distribution("debian", "13")
        self.lacks(USER + HEADERS, "g++")

    def test_debian_12_asks_dpkg(self):
        self.distribution("debian", "12")
        self.programs(["dpkg-query"], "echo installed")
        self.assertEqual(self.run_it("--ci"), (0, "setup: nothing to do\n", ""))

    def test_debian_12_installs_what_dpkg_lacks(self):
        self.distribution("debian", "12")
        self.programs(["dpkg-query"], 'case "$*" in *cmake*) ;; *) echo installed ;; esac')
        self.programs(["id"], "echo 0")
        self.programs(["env"], 'echo "$*" >>"${0%/path/env}/calls"')
        self.assertEqual(self.run_it("--ci")[:2], (0, "setup: will install cmake\nsetup: done\n"))
        with open(os.path.join(self.root, "calls")) as calls:
            self.assertTrue(all(" cmake" in call and "apt-get" in call for call in calls))

    def test_an_unknown_option(self):
        self.assertEqual(self.run_it("--cj")[0], 1)


if __name__ == "__main__":
    unittest.main()
