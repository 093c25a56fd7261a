#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of indexes, on a workspace made up for each case."""
import os
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "indexes")
HEADER = """\
struct a_tag {};
template <class P>
concept a_policy = true;
struct shipped {};
static_assert(a_policy<shipped> && !a_policy<other>);
/// Customization point: which one.
template <class T>
struct kind_of {
"""
ROWS = """\
//   x::a_policy  a_tag  x/a.hpp  law/a.hpp
//   kind_of      x/a.hpp  law/a.hpp
"""
DOCUMENT = "| kind | what |\n| --- | --- |\n| too long | no |\n"
SUITE = 'TEST_CASE_TEMPLATE_INVOKE(laws,\n  x::shipped);\nTEST_CASE("too"\n  " long: a") {}\n'


class Indexes(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.write("include/protrain/x/a.hpp", HEADER)
        self.write("include/protrain/core/customization.hpp", ROWS)
        self.write("test/law/a.hpp", SUITE)
        self.write("docs/pitfalls.md", DOCUMENT)

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)

    def refused(self, part):
        run = subprocess.run([sys.executable, PROGRAM, "--root", self.folder.name],
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.assertEqual(run.returncode, 1 if part else 0, run.stderr)
        self.assertIn(part, run.stderr)
        self.assertEqual(run.stderr.count("\n"), 1 if part else 0, run.stderr)

    def test_complete(self):
        self.refused("")

    def test_concept_tag_and_trait_that_nothing_lists(self):
        self.write("include/protrain/x/b.hpp", "template <class T>\nconcept knows = true;\n")
        self.refused("knows of include/protrain/x/b.hpp isn't listed")
        self.write("include/protrain/x/b.hpp", "struct b_tag {};\n")
        self.refused("b_tag of include/protrain/x/b.hpp isn't listed")
        self.write("include/protrain/x/b.hpp", HEADER[HEADER.index("///"):].replace("kind_of", "size_of"))
        self.refused("size_of of include/protrain/x/b.hpp isn't listed")

    def test_optional_member_that_nothing_lists(self):
        for text, name in (("requires { d.peek(where); }) {", "peek"),
                           ("requires { bool{D::quiet}; }) {", "quiet"),
                           ("requires {\n    { c.near() } noexcept -> std::same_as<int>;\n  }) {", "near")):
            self.write("include/protrain/x/b.hpp", "  if constexpr (" + text)
            self.refused(name + " of include/protrain/x/b.hpp isn't listed")
            self.write("include/protrain/core/customization.hpp", ROWS + "//   " + name + "  x/b.hpp  law/a.hpp\n")
            self.refused("")
            self.write("include/protrain/core/customization.hpp", ROWS)

    def test_row_of_what_is_gone(self):
        self.write("include/protrain/core/customization.hpp", ROWS + "//   y::gone  x/a.hpp  law/a.hpp\n")
        self.refused("gone isn't in include/protrain/x/a.hpp")
        self.write("include/protrain/core/customization.hpp", ROWS.replace("law/a.hpp\n", "law/b.hpp\n", 1))
        self.refused("a_policy: no test/law/b.hpp")

    def test_model_without_its_suite(self):
        self.write("test/law/a.hpp", SUITE.replace("shipped", "other"))
        self.refused("shipped: no law suite of a_policy runs over it")

    def test_kind_without_a_test_case(self):
        self.write("docs/pitfalls.md", DOCUMENT + "| too short | yes |\n")
        self.refused('no test case "too short"')
        self.write("docs/pitfalls.md", "")
        self.refused("no kinds")


if __name__ == "__main__":
    unittest.main()
