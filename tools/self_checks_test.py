#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of self_checks, on a workspace made up for each case."""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "self_checks")
BUILD = 'protrain_library(\n    name = "a",\n    hdrs = [\n        "y.hpp",\n        "detail/x.hpp",\n    ],\n)\n'


class SelfChecks(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("BUILD.bazel", BUILD)
        self.write("y.hpp", "")
        self.write("detail/x.hpp", "")

    def path(self, name):
        return os.path.join(self.folder.name, "include/protrain/a", name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as out:
            out.write(text)

    def run_program(self, *arguments):
        run = subprocess.run([sys.executable, PROGRAM, "--root", self.folder.name, *arguments],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        return run.returncode, run.stderr

    def includes(self, name):
        with open(self.path(name)) as text:
            return [line.strip() for line in text if line.startswith("#include")]

    def test_every_header_twice(self):
        self.assertEqual(self.run_program(), (0, ""))
        once = ["#include <protrain/a/detail/x.hpp>", "#include <protrain/a/y.hpp>"]
        self.assertEqual(self.includes("self_check.cc"), once + once)
        self.assertEqual(self.run_program("--check"), (0, ""))

    def test_check_finds_a_stale_file_and_leaves_it(self):
        code, message = self.run_program("--check")
        self.assertEqual(code, 1)
        self.assertIn("stale", message)
        self.assertFalse(os.path.exists(self.path("self_check.cc")))

    def test_two_libraries_of_one_package(self):
        self.write("BUILD.bazel", BUILD + 'protrain_cuda_library(name = "k", hdrs = ["k.cuh"])\n'
                   'protrain_library(name = "b", hdrs = ["b.hpp"], self_check = "b_check.cc")\n')
        self.write("k.cuh", "")
        self.write("b.hpp", "")
        self.assertEqual(self.run_program(), (0, ""))
        self.assertEqual(self.includes("self_check.cu"), ["#include <protrain/a/k.cuh>"] * 2)
        self.assertEqual(self.includes("b_check.cc"), ["#include <protrain/a/b.hpp>"] * 2)

    def test_header_that_nothing_names(self):
        self.write("detail/z.hpp", "")
        code, message = self.run_program()
        self.assertEqual(code, 1)
        self.assertIn("detail/z.hpp: in no library's hdrs", message)

    def test_header_of_another_package_is_not_missed(self):
        self.write("sub/BUILD.bazel", 'protrain_library(name = "sub", hdrs = ["s.hpp"])\n')
        self.write("sub/s.hpp", "")
        self.assertEqual(self.run_program(), (0, ""))

    def test_header_that_is_not_there(self):
        os.remove(self.path("y.hpp"))
        code, message = self.run_program()
        self.assertEqual(code, 1)
        self.assertIn("y.hpp: named in BUILD.bazel, but not there", message)

    def test_folder_without_a_package(self):
        self.write("../b/z.hpp", "")
        code, message = self.run_program()
        self.assertEqual(code, 1)
        self.assertIn("headers without a BUILD.bazel", message)


if __name__ == "__main__":
    unittest.main()
