#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the translation units that clang-tidy looks at in place of the project's own.

What clang-tidy costs is the headers that a file includes, and neighbours include the same.
So one unit reads every self check below include/, and one the files that are compiled
alike; programs with a main() stay alone. Reads compile_commands.json; writes FOLDER/*.cc and
FOLDER/compile_commands.json; prints for each unit its file, the folder whose lines count,
and the files it reads.
"""
import argparse
import json
import os
import re


def group_of(command):
    """Commands with equal groups share a unit."""
    source = command["file"]
    if source.startswith("include/"):
        return "include"
    with open(source) as text:
        if re.search(r"^int main\(", text.read(), re.MULTILINE):
            return source
    flags = [a for a in command["arguments"] if a != source]
    return os.path.dirname(source) + " " + " ".join(flags)


def most_flags(commands):
    """The command that finds the headers of all: an umbrella's, for the self checks."""
    return max(commands, key=lambda c: (len(c["arguments"]), c["file"]))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", metavar="FOLDER", help="an empty one")
    folder = parser.parse_args().folder
    with open("compile_commands.json") as text:
        commands = json.load(text)
    groups = {}
    for command in commands:
        groups.setdefault(group_of(command), []).append(command)
    units = []
    for number, members in enumerate(groups[k] for k in sorted(groups)):
        sources = sorted(c["file"] for c in members)
        unit = sources[0]  # alone it is its own, and keeps its folder's .clang-tidy
        if len(sources) > 1:
            unit = os.path.join(folder, "unit%d.cc" % number)
            with open(unit, "w") as out:
                out.writelines('#include "%s"\n' % s for s in sources)
        like = most_flags(members)
        arguments = [unit if a == like["file"] else a for a in like["arguments"]]
        units.append({"directory": like["directory"], "file": unit, "arguments": arguments})
        counts = "include/protrain" if sources[0].startswith("include/") else os.path.dirname(sources[0])
        print("\t".join([unit, counts, " ".join(sources)]))
    with open(os.path.join(folder, "compile_commands.json"), "w") as out:
        json.dump(units, out, indent=1)


if __name__ == "__main__":
    main()
