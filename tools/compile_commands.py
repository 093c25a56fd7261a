#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes compile_commands.json from Bazel's own action graph.

Needs a finished build of the targets: header folders that Bazel re-roots
(strip_include_prefix) are symlink trees, and they are mapped back to the real
folders so that editors and clang-tidy name the file you edit.
"""
import argparse
import json
import os
import subprocess
import sys

# Options that only GCC knows, or that hide the real source from a tool.
DROP = {"-fno-canonical-system-headers", "-Wno-free-nonheap-object", "-Wunused-but-set-parameter", "-MD"}
DROP_WITH_VALUE = {"-MF", "-o"}
DROP_PREFIX = ("-frandom-seed=", "-D__DATE__=", "-D__TIME__=", "-D__TIMESTAMP__=")
PATH_FLAGS = ("-iquote", "-isystem", "-I")


def bazel(*args):
    return subprocess.run(["bazel", *args], check=True, stdout=subprocess.PIPE, text=True).stdout


def real_root(folder):
    """The source folder behind a _virtual_includes tree, or the folder itself."""
    if "/_virtual_includes/" in folder:
        for base, _, names in os.walk(folder):
            for name in names:
                link = os.path.join(base, name)
                rel = os.path.relpath(link, folder)
                target = os.path.realpath(link)
                if target.endswith(os.sep + rel):
                    return target[: -len(rel) - 1]
    return folder


def convert(arguments, root, output_base):
    def fix(path):
        if path.startswith("external/"):
            return os.path.join(output_base, path)
        return os.path.relpath(real_root(path), root) if "_virtual_includes" in path else path

    out, seen = [], set()

    def add_path(*flag_and_path):  # many targets share one real folder
        if flag_and_path not in seen:
            seen.add(flag_and_path)
            out.extend(flag_and_path)

    it = iter(arguments)
    for arg in it:
        if arg in DROP or arg.startswith(DROP_PREFIX):
            continue
        if arg in DROP_WITH_VALUE:
            next(it)
            continue
        for flag in PATH_FLAGS:
            if arg == flag:
                add_path(flag, fix(next(it)))
                break
            if arg.startswith(flag) and len(arg) > len(flag):
                add_path(flag + fix(arg[len(flag):]))
                break
        else:
            out.append(arg)
    return out


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=["//..."], help="target patterns (default: //...)")
    patterns = parser.parse_args().targets
    root = bazel("info", "workspace").strip()
    output_base = bazel("info", "output_base").strip()
    os.chdir(root)
    graph = json.loads(bazel(
        "aquery", "--output=jsonproto", "--include_artifacts=false", "--ui_event_filters=-info",
        "--noshow_progress", 'mnemonic("CppCompile", %s)' % " + ".join(patterns)))
    commands = {}
    for action in graph.get("actions", []):
        arguments = action["arguments"]
        source = arguments[arguments.index("-c") + 1]
        if source.startswith(("external/", "bazel-out/")):
            continue
        commands[source] = {
            "directory": root,
            "file": source,
            "arguments": convert(arguments, root, output_base),
        }
    with open("compile_commands.json", "w") as out:
        json.dump([commands[k] for k in sorted(commands)], out, indent=1)
    print("%d commands" % len(commands))


if __name__ == "__main__":
    sys.exit(main())
