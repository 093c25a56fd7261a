#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of tidy_units.py, on a small tree with commands as compile_commands.py writes them."""
import json
import os
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

    def add(self, source, text, flags):
        path = os.path.join(self.folder.name, source)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as out:
            out.write(text)
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
                    includes = [part.split('"')[1] for part in text.read().splitlines()]
            self.assertEqual(includes, sources.split(" "))
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

    def test_neighbours_share_a_unit_if_they_are_compiled_alike(self):
        self.add("examples/cli/a.cpp", "int a();\n", ["-Ia"])
        self.add("examples/cli/b.cpp", "int b();\n", ["-Ia"])
        self.add("examples/cli/c.cpp", "int c();\n", ["-Ib"])
        self.assertEqual([u[0] for u in self.units()], [
            ["examples/cli/a.cpp", "examples/cli/b.cpp"], ["examples/cli/c.cpp"]])

    def test_programs_stay_alone(self):
        self.add("examples/one.cpp", "int main() {}\n", ["-Ia"])
        self.add("examples/two.cpp", "int main() {}\n", ["-Ia"])
        units = self.units()
        self.assertEqual(sorted(u[0] for u in units), [["examples/one.cpp"], ["examples/two.cpp"]])
        self.assertEqual({u[1] for u in units}, {"examples"})


if __name__ == "__main__":
    unittest.main()
