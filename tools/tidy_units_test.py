#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tidy_units.py, on a small tree with commands as compile_commands.py writes them."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tidy_units.py")


class TidyUnits(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.commands = []
        self.texts = {}  # by the sources that a unit reads

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)

    def add(self, source, text, flags):
        self.write(source, text)
        self.commands.append({
            "directory": self.folder.name, "file": source,
            "arguments": ["c++", *flags, "-c", source],
        })

    def units(self):
        """[(sources as included, folder that counts, command)] in the order of the program."""
        with open(os.path.join(self.folder.name, "compile_commands.json"), "w") as out:
            json.dump(self.commands, out)
        into = os.path.join(self.folder.name, "units")
        os.mkdir(into)
        run = subprocess.run([sys.executable, PROGRAM, into], cwd=self.folder.name, check=True,
                             stdout=subprocess.PIPE, text=True)
        with open(os.path.join(into, "compile_commands.json")) as text:
            written = {c["file"]: c for c in json.load(text)}
        out = []
        for line in run.stdout.splitlines():
            unit, counts, sources = line.split("\t")
            includes = [unit]
            if os.path.isabs(unit):
                with open(unit) as text:
                    self.texts[sources] = text.read()
                includes = re.findall(r'^#include "(.*\.(?:cpp|cc))"$', self.texts[sources], re.MULTILINE)
            self.assertEqual(sorted(includes), sources.split(" "))
            self.assertIn(unit, written[unit]["arguments"])
            out.append((includes, counts, written[unit]["arguments"][1:-2]))
        return out

    def test_self_checks_share_a_unit_that_finds_all_headers(self):
        self.add("include/protrain/core/self_check.cc", "", ["-Ia"])
        self.add("include/protrain/self_check.cc", "", ["-Ia", "-Ib"])
        self.assertEqual(self.units(), [
            (["include/protrain/core/self_check.cc", "include/protrain/self_check.cc"],
             "include/protrain", ["-Ia", "-Ib"]),
        ])

    def test_files_share_a_unit_if_they_are_compiled_alike(self):
        self.add("examples/cli/a.cpp", "int a();\n", ["-Ia"])
        self.add("examples/other/b.cpp", "int b();\n", ["-isystem", "b"])
        self.add("examples/cli/c.cpp", "int c();\n", ["-Ia", "-DC"])
        self.add("bench/d.cpp", "int d();\n", ["-Ia"])
        units = {tuple(sources): (counts, flags) for sources, counts, flags in self.units()}
        self.assertEqual(set(units), {("examples/cli/a.cpp", "examples/other/b.cpp"),
                                      ("examples/cli/c.cpp",), ("bench/d.cpp",)})
        counts, flags = units["examples/cli/a.cpp", "examples/other/b.cpp"]
        self.assertEqual(counts, "examples")
        self.assertIn("a", " ".join(flags))  # it finds the headers of both
        self.assertIn("-isystem b", " ".join(flags))

    def test_a_folder_with_settings_of_its_own_stays_alone(self):
        self.write("examples/own/.clang-tidy", "Checks: '-*'\n")
        self.add("examples/own/a.cpp", "", ["-Ia"])
        self.add("examples/own/b.cpp", "", ["-Ia"])
        self.add("examples/c.cpp", "", ["-Ia"])
        self.add("examples/d.cpp", "", ["-Ia"])
        units = self.units()
        self.assertEqual(sorted((u[0], u[1]) for u in units), [
            (["examples/c.cpp", "examples/d.cpp"], "examples"),
            (["examples/own/a.cpp"], "examples/own"), (["examples/own/b.cpp"], "examples/own")])

    def test_programs_have_a_namespace_each_after_their_headers(self):
        self.add("examples/one.cpp", '#include "x.hpp"\n#include <string>\nint main() {}\n', ["-Ia"])
        self.add("examples/two.cpp", "int main(int, char**) {}\n", ["-Ia"])
        self.add("examples/part.cpp", "int part();\n", ["-Ia"])
        (sources, _, _), = self.units()
        text = self.texts[" ".join(sorted(sources))]
        at = [text.index(part) for part in (
            '"examples/part.cpp"', '"x.hpp"', "<string>", "namespace program", '"examples/one.cpp"', "}",
            '"examples/two.cpp"')]
        self.assertEqual(at, sorted(at))
        self.assertEqual(text.count("namespace program"), 2)
        for line in re.findall(r"^namespace (\w+) {$", text, re.MULTILINE):
            self.assertEqual(text.count(line + " "), 1)

    def test_the_largest_unit_is_last(self):
        self.add("include/protrain/self_check.cc", "", ["-Ia"])
        for name in "abc":
            self.add("examples/%s.cpp" % name, "", ["-Ia"])
        self.assertEqual([u[1] for u in self.units()], ["include/protrain", "examples"])


if __name__ == "__main__":
    unittest.main()
