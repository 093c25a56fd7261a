#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the translation units that clang-tidy looks at in place of the project's own.

What clang-tidy costs is the headers that a file includes, and neighbours include the same.
So one unit reads every self check below include/, and one the files below examples/ that
are compiled alike; what has a .clang-tidy in its folder stays alone. Programs are read in a namespace each,
after the headers that they include. Reads compile_commands.json; writes FOLDER/*.cc and
FOLDER/compile_commands.json; prints for each unit its file, the folder whose lines count,
and the files it reads.
"""
import argparse
import json
import os
import re


FOLDER_OPTIONS = ("-I", "-isystem", "-iquote")
MAIN = "int main(int, char**);  // NOLINT(misc-use-internal-linkage)"


def group_of(command):
    """(folder whose lines count, what else decides): commands with equal groups share a unit."""
    source = command["file"]
    folder = os.path.dirname(source)
    if os.path.exists(os.path.join(folder, ".clang-tidy")):
        return folder, source
    if source.startswith("include/"):
        return "include/protrain", ""  # planning's own check differs in what it forbids
    return source.split("/")[0], " ".join(without_folders(command["arguments"], source))


def unit_of(sources):
    """The text of a unit that reads them."""
    plain, programs = [], []
    for number, source in enumerate(sources):
        with open(source) as text:
            lines = text.read()
        if re.search(r"^int main\(", lines, re.MULTILINE):
            programs += re.findall(r"^#include .*$", lines, re.MULTILINE)
            programs += ["namespace program%d {" % number, MAIN, '#include "%s"' % source, "}"]
        else:
            plain.append('#include "%s"' % source)
    return "\n".join(plain + programs) + "\n"


def arguments_of(commands, unit):
    """The command of one of them, which also finds the headers of the others."""
    like = max(commands, key=lambda c: (len(c["arguments"]), c["file"]))
    arguments = [unit if a == like["file"] else a for a in like["arguments"]]
    known = set(include_folders(arguments))
    for command in commands:
        for option, folder in include_folders(command["arguments"]):
            if (option, folder) not in known:
                known.add((option, folder))
                arguments[1:1] = [option, folder]
    return arguments


def include_folders(arguments):
    """[(option, folder)]"""
    found = []
    for at, argument in enumerate(arguments):
        if argument in FOLDER_OPTIONS:
            found.append((argument, arguments[at + 1]))
        elif argument.startswith("-I"):
            found.append(("-I", argument[2:]))
    return found


def without_folders(arguments, source):
    """What else the compiler is told."""
    left = []
    for before, argument in zip([""] + arguments, arguments):
        folder = before in FOLDER_OPTIONS or argument.startswith("-I") or argument in FOLDER_OPTIONS
        if not folder and argument != source:
            left.append(argument)
    return left


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
    for number, group in enumerate(sorted(groups, key=lambda g: (len(groups[g]), g))):
        sources = sorted(c["file"] for c in groups[group])
        unit = sources[0]  # alone it is its own, and keeps its folder's .clang-tidy
        if len(sources) > 1:
            unit = os.path.join(folder, "unit%d.cc" % number)
            with open(unit, "w") as out:
                out.write(unit_of(sources))
        units.append({"directory": groups[group][0]["directory"], "file": unit,
                      "arguments": arguments_of(groups[group], unit)})
        print("\t".join([unit, group[0], " ".join(sources)]))
    with open(os.path.join(folder, "compile_commands.json"), "w") as out:
        json.dump(units, out, indent=1)


if __name__ == "__main__":
    main()
